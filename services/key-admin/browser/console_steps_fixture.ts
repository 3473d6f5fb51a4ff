/** One browser for both: to start it costs as much as twenty pages. */
import "./life_steps_fixture.ts";
import "./try_steps_fixture.ts";
