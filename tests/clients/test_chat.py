"""Chat Completions through the official openai client."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import subprocess

import openai
import pytest

from conftest import MODEL, PROGRAM, WEATHER, plain

SAMPLES = json.loads((pathlib.Path(__file__).parents[2] / "models/nano/samples.json").read_text())


def test_a_plain_request(client):
    reply = client.chat.completions.create(**plain("What is the capital of France?"))
    choice = reply.choices[0]
    assert reply.object == "chat.completion" and reply.model == MODEL
    assert "Paris" in choice.message.content
    assert choice.finish_reason == "stop"
    assert reply.usage.prompt_tokens > 0 and reply.usage.completion_tokens > 0
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_stream_is_the_same_reply(client):
    whole = client.chat.completions.create(**plain("Tell me a story about a fox.", max_tokens=80))
    chunks = list(client.chat.completions.create(**plain("Tell me a story about a fox.", max_tokens=80, stream=True, stream_options={"include_usage": True})))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_thinking(client):
    reply = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "What is 12 plus 30?"}], seed=1, max_tokens=400)
    message = reply.choices[0].message
    assert message.reasoning_content
    assert "</think>" not in message.reasoning_content and "</think>" not in (message.content or "")
    assert reply.usage.completion_tokens_details.reasoning_tokens > 0


def test_thinking_in_a_stream(client):
    chunks = list(client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "What is 2 plus 3?"}], seed=1, max_tokens=400, stream=True))
    reasoning = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks if chunk.choices)
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert reasoning
    assert content or chunks[-1].choices[0].finish_reason == "length"


def test_a_tool_call_and_its_result(client):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    extra = {"thinking": {"type": "disabled"}}
    reply = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], temperature=0, extra_body=extra)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] == "Paris"
    messages += [choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21, "condition": "sunny"}'}]
    after = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], temperature=0, extra_body=extra)
    assert after.choices[0].finish_reason == "stop"
    assert after.choices[0].message.content


def test_a_tool_call_in_a_stream(client):
    arguments, names, finish = "", [], None
    request = plain("What is the weather in Tokyo?", tools=[WEATHER], stream=True)
    for chunk in client.chat.completions.create(**request):
        for call in chunk.choices[0].delta.tool_calls or []:
            names += [call.function.name] if call.function.name else []
            arguments += call.function.arguments or ""
        finish = chunk.choices[0].finish_reason or finish
    assert names == ["get_weather"] and finish == "tool_calls"
    assert json.loads(arguments) == {"city": "Tokyo"}


def test_a_stop_sequence(client, server):
    whole = client.chat.completions.create(**plain("What is the capital of France?")).choices[0].message.content
    stop = whole.split()[-1]
    cut = client.chat.completions.create(**plain("What is the capital of France?", stop=[stop]))
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    server.wait_until_quiet()


def test_max_tokens_is_exact(client):
    reply = client.chat.completions.create(**plain("Tell me a story about a fox.", max_tokens=5))
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 5


def test_a_max_tokens_beyond_the_context_is_refused_in_the_official_words(client):
    with pytest.raises(openai.BadRequestError, match="maximum context length is 8192 tokens. However, you requested 393221 tokens \\(5 in the messages, 393216"):
        client.chat.completions.create(**plain("Hello", max_tokens=393216))


def test_log_probabilities(client):
    reply = client.chat.completions.create(**plain("Hello", logprobs=True, top_logprobs=3))
    content = reply.choices[0].logprobs.content
    assert content and all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in content)
    assert content[0].token == content[0].top_logprobs[0].token


def test_a_seed_fixes_a_sampled_reply(client):
    request = plain("Tell me a story about a robot.", temperature=1.0, seed=7, max_tokens=40)
    texts = {client.chat.completions.create(**request).choices[0].message.content for _ in range(3)}
    assert len(texts) == 1


def test_sixteen_at_once_are_the_same_as_alone(client, server):
    questions = [f"What is {a} plus {a + 3}?" for a in range(16)]
    ask = lambda question: client.chat.completions.create(**plain(question, max_tokens=60)).choices[0].message.content  # noqa: E731
    alone = [ask(question) for question in questions]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, questions))
    assert together == alone
    server.wait_until_quiet()


def test_sixteen_streams_at_once(client, server):
    def stream(_: int) -> str:
        return "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**plain("Tell me a story about a cat.", max_tokens=60, stream=True)))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        texts = set(pool.map(stream, range(16)))
    assert len(texts) == 1
    server.wait_until_quiet()


def test_a_client_that_leaves_in_the_middle_ends_its_work(client, server):
    before = server.get("/health")
    stream = client.chat.completions.create(**plain("Tell me a story about a fox.", stream=True, max_tokens=2000, temperature=1.5, stop=["\u0000"]))
    next(iter(stream))
    stream.close()
    server.wait_until_quiet()
    after = server.get("/health")
    assert after["requests_finished"] == before["requests_finished"] + 1
    assert client.chat.completions.create(**plain("Hello")).choices[0].finish_reason == "stop"


def test_the_models_are_listed(client):
    names = [model.id for model in client.models.list()]
    assert names[0] == MODEL and "DeepSeek-V4.1-Flash" in names
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_the_text_of_the_server_is_the_text_of_run(client):
    question = "What is the capital of Japan?"
    served = client.chat.completions.create(**plain(question)).choices[0].message.content
    run = subprocess.run([PROGRAM, "run", "--prompt", question, "--thinking", "off", "--temperature", "0"], capture_output=True, text=True, check=True)
    assert run.stdout.removesuffix("\n") == served


@pytest.mark.parametrize("sample", [s for s in SAMPLES if not s["thinking"]], ids=lambda s: s["name"])
def test_greedy_samples_of_the_reference(client, sample):
    """The reference's greedy text, up to the first place where its own two best tokens were nearly equal."""
    request = {"model": MODEL, "messages": sample["messages"], "temperature": 0, "max_tokens": sample["params"]["max_tokens"], "extra_body": {"thinking": {"type": "disabled"}}}
    if sample["tools"]:
        request["tools"] = [{"type": "function", "function": tool} for tool in sample["tools"]]
    if sample["tool_choice"]:
        request["tool_choice"] = sample["tool_choice"]
    if sample["json_mode"]:
        request["response_format"] = {"type": "json_object"}
    if sample["schema"]:
        request["response_format"] = {"type": "json_schema", "json_schema": {"name": "person", "schema": sample["schema"]}}
    reply = client.chat.completions.create(**request)
    assert reply.usage.prompt_tokens == len(sample["prompt_ids"])
    if sample["schema"] or sample["json_mode"]:
        assert isinstance(json.loads(reply.choices[0].message.content), dict)
    if min(sample["margins"]) > 0.5 and not sample["tools"]:
        assert reply.choices[0].message.content == sample["output_text"].removesuffix("<｜end▁of▁sentence｜>")
