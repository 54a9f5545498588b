"""Plain completions, and what sampling members do, through the official openai client."""

from __future__ import annotations

import openai
import pytest

from conftest import MODEL, plain


def test_a_prompt_is_continued(client):
    reply = client.completions.create(model=MODEL, prompt="<｜User｜>What is the capital of France?<｜Assistant｜></think>", max_tokens=40, temperature=0)
    assert reply.object == "text_completion"
    assert "Paris" in reply.choices[0].text and reply.choices[0].finish_reason == "stop"
    chat = client.chat.completions.create(**plain("What is the capital of France?"))
    assert reply.choices[0].text == chat.choices[0].message.content
    assert reply.usage.prompt_tokens == chat.usage.prompt_tokens


def test_a_stream_is_the_same_text(client):
    request = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 30, "temperature": 0}
    whole = client.completions.create(**request).choices[0].text
    chunks = list(client.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole
    assert chunks[-1].usage.completion_tokens == 30


def test_prompts_n_and_echo(client):
    reply = client.completions.create(model=MODEL, prompt=["One two", "Red green"], n=2, echo=True, max_tokens=5, temperature=0)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert reply.choices[0].text.startswith("One two") and reply.choices[2].text.startswith("Red green")
    assert reply.choices[0].text == reply.choices[1].text


def test_log_probabilities(client):
    reply = client.completions.create(model=MODEL, prompt="Hello", logprobs=3, max_tokens=4, temperature=0)
    logprobs = reply.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == 4
    assert all(logprob <= 0 for logprob in logprobs.token_logprobs)
    assert "".join(logprobs.tokens) == reply.choices[0].text


def test_the_middle_is_filled_in(client):
    reply = client.completions.create(model=MODEL, prompt="def add(a, b):\n", suffix="\n    return c", max_tokens=8, temperature=0)
    assert reply.usage.completion_tokens <= 8


def test_choices_of_one_chat_request_differ_by_their_seeds(client):
    reply = client.chat.completions.create(**plain("Tell me a story about a robot.", temperature=1.2, seed=7, n=3, max_tokens=40))
    texts = [choice.message.content for choice in reply.choices]
    assert [choice.index for choice in reply.choices] == [0, 1, 2] and len(set(texts)) == 3
    again = client.chat.completions.create(**plain("Tell me a story about a robot.", temperature=1.2, seed=9, max_tokens=40))
    assert again.choices[0].message.content == texts[2]


def test_a_bias_forbids_a_token(client, server):
    question = plain("What is the capital of France?", max_tokens=30)
    first = client.chat.completions.create(**question, logprobs=True).choices[0]
    status, ids = server.post("/tokenize", b'{"text":"%s"}' % first.logprobs.content[0].token.encode())
    assert status == 200
    biased = client.chat.completions.create(**question, logit_bias={str(ids["ids"][0]): -100}).choices[0]
    assert not biased.message.content.startswith(first.logprobs.content[0].token)


def test_a_penalty_ends_a_loop(client):
    question = plain("Tell me a story about a fox.", max_tokens=60, logprobs=True)
    tokens = lambda **more: [entry.token for entry in client.chat.completions.create(**question, **more).choices[0].logprobs.content]  # noqa: E731
    assert len(set(tokens(frequency_penalty=2.0))) > len(set(tokens()))


def test_eos_is_ignored_when_asked_for(client):
    reply = client.chat.completions.create(**{**plain("Hello", max_tokens=60), "extra_body": {"thinking": {"type": "disabled"}, "ignore_eos": True, "min_p": 0.1, "top_k": 5}})
    assert reply.usage.completion_tokens == 60 and reply.choices[0].finish_reason == "length"


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": 100}, {"presence_penalty": 3}, {"logit_bias": {"x": 1}}, {"logit_bias": {"999999": 1}}])
def test_wrong_members_are_refused(client, wrong):
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**plain("Hello", **wrong))
