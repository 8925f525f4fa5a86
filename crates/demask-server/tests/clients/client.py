"""OpenAI's Python client against a running server: chat, completions, streams, stop, seed, errors.

python client.py http://127.0.0.1:PORT/v1
"""

import sys

import openai

base = sys.argv[1]
client = openai.OpenAI(base_url=base, api_key="unused", max_retries=0, timeout=120)
MESSAGES = [{"role": "user", "content": "Name the months."}]


def chat(**more):
    return client.chat.completions.create(**{"model": model, "messages": MESSAGES, "max_tokens": 48, **more})


models = client.models.list()
assert len(models.data) == 1, models
model = models.data[0].id
assert client.models.retrieve(model).id == model

whole = chat()
text = whole.choices[0].message.content
assert whole.object == "chat.completion" and whole.choices[0].message.role == "assistant"
assert text and whole.choices[0].finish_reason in ("stop", "length"), whole
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
assert whole.usage.nfe > 0 and whole.usage.rows > 0, "extra fields reach the caller"

chunks = list(chat(stream=True, stream_options={"include_usage": True}))
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
assert chunks[0].choices[0].delta.role == "assistant"
assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [whole.choices[0].finish_reason]
assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
assert len(chunks) > 3, "a stream comes in pieces"

with client.chat.completions.stream(model=model, messages=MESSAGES, max_tokens=48) as stream:
    for _ in stream:
        pass
    assert stream.get_final_completion().choices[0].message.content == text

stop = text[len(text) // 2 :][:3]
cut = text[: text.index(stop)]
for form in (stop, ["never there", stop]):
    stopped = chat(stop=form)
    assert stopped.choices[0].message.content == cut, (stopped, cut)
    assert stopped.choices[0].finish_reason == "stop"
    pieces = chat(stop=form, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in pieces) == cut

drawn = [chat(seed=7, temperature=0.9).choices[0] for _ in range(2)]
assert drawn[0].message.content == drawn[1].message.content and drawn[0].seed == 7
two = chat(seed=6, temperature=0.9, n=2)
assert two.choices[1].message.content == drawn[0].message.content

fast = chat(extra_body={"recipe": "fast", "threshold": 0.8})
assert fast.usage.nfe < whole.usage.nfe

raw = client.completions.create(model=model, prompt="2 + 3 =", max_tokens=8)
assert raw.object == "text_completion" and isinstance(raw.choices[0].text, str)
pieces = client.completions.create(model=model, prompt="2 + 3 =", max_tokens=8, stream=True)
assert "".join(piece.choices[0].text for piece in pieces) == raw.choices[0].text
gap = client.completions.create(model=model, prompt="The capital of", suffix=" is Copenhagen.", max_tokens=3)
assert isinstance(gap.choices[0].text, str)

for wrong, error, param in (
    (dict(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]), openai.BadRequestError, "tools"),
    (dict(model="gpt-4o"), openai.NotFoundError, "model"),
    (dict(max_tokens=0), openai.BadRequestError, "max_tokens"),
    (dict(extra_body={"foo": 1}), openai.BadRequestError, "foo"),
):
    try:
        chat(**wrong)
    except error as failure:
        assert failure.param == param, failure
    else:
        raise AssertionError(f"{wrong} was taken")

print(f"openai {openai.__version__}: ok")
