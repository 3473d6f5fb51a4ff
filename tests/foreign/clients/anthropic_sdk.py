"""What a program with Anthropic's SDK for Python does, run by official_sdks.ts: it ends
with 0 if everything was as it should be."""
import os

import anthropic

ADDRESS, KEY, WRONG_KEY, MODEL = (
    os.environ[name] for name in ("ADDRESS", "KEY", "WRONG_KEY", "MODEL")
)
client = anthropic.Anthropic(base_url=ADDRESS, api_key=KEY, max_retries=0)
messages = [{"role": "user", "content": "Run `cat note.txt`"}]
tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
ask = {"model": MODEL, "max_tokens": 100, "messages": messages}


def fails(expected, **change):
    try:
        client.messages.create(**{**ask, **change})
    except expected:
        return
    raise AssertionError(f"no {expected}")


whole = client.messages.create(**ask)
assert whole.content[0].text == "Hello there."
assert whole.usage.output_tokens == 5

with client.messages.stream(**ask, tools=tools) as stream:
    called = stream.get_final_message()
assert called.stop_reason == "tool_use"
assert called.content[0].input["command"] == "cat note.txt"

result = {
    "type": "tool_result",
    "tool_use_id": called.content[0].id,
    "content": "a mark",
}
history = [
    *messages,
    {"role": "assistant", "content": called.content},
    {"role": "user", "content": [result]},
]
answered = client.messages.create(**{**ask, "messages": history}, tools=tools)
assert answered.content[0].text == "Result: a mark"

count = client.messages.count_tokens(model=MODEL, messages=messages)
assert count.input_tokens == 7
assert MODEL in [model.id for model in client.models.list()]

fails(anthropic.NotFoundError, model="none")
fails(anthropic.BadRequestError, max_tokens=-1)
# With retries allowed, as they are by default.
client = anthropic.Anthropic(base_url=ADDRESS, api_key=WRONG_KEY)
fails(anthropic.AuthenticationError)
