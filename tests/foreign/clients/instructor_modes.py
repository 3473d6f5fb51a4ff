"""What a program with Instructor does, run by frameworks.ts: an object of a schema in
each of its modes, whole and while it grows."""
import os
from typing import Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel

ADDRESS, KEY, MODEL = (os.environ[name] for name in ("ADDRESS", "KEY", "MODEL"))


class Person(BaseModel):
    name: str
    age: int
    tags: list[str]
    kind: Literal["cat", "dog"]


class Short(BaseModel):
    name: str
    age: int


client = OpenAI(base_url=f"{ADDRESS}/v1", api_key=KEY)
messages = [{"role": "user", "content": "Make a person named Ada, aged 36."}]
for mode in (
    instructor.Mode.TOOLS,
    instructor.Mode.JSON,
    instructor.Mode.JSON_SCHEMA,
    instructor.Mode.MD_JSON,
):
    asked = instructor.from_openai(client, mode=mode)
    create = asked.chat.completions
    ask = {"model": MODEL, "messages": messages, "max_retries": 0}
    person = create.create(response_model=Person, **ask)
    assert (person.name, person.age) == ("Ada", 36), (mode, person)
    # Its partial objects fail with an enumeration, of which a part is no member.
    *_, last = create.create_partial(response_model=Short, **ask)
    assert (last.name, last.age) == ("Ada", 36), (mode, last)
