/** Both in one process, since starting a browser costs as much as twenty pages. */
import "./life_steps_fixture.ts";
import "./try_steps_fixture.ts";
