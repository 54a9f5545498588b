"""Structured output over the official clients: whatever is asked for, the reply fits it."""

import json
import re
from typing import Annotated, Literal

import openai
import pydantic
import pytest

from conftest import MODEL

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


class Person(pydantic.BaseModel, extra="forbid", strict=True):
    """The same as a model, to check replies by."""

    name: Annotated[str, pydantic.Field(max_length=20)]
    age: Annotated[int, pydantic.Field(ge=0, le=120)]
    tags: Annotated[list[Literal["a", "b"]], pydantic.Field(max_length=3)]


class WeatherArguments(pydantic.BaseModel, extra="forbid", strict=True):
    city: str
    days: int


WEATHER = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"], "additionalProperties": False}}}


def ask(client, text, *, thinking=False, **more):
    body = {"model": MODEL, "messages": [{"role": "user", "content": text + " Answer in json."}], "max_tokens": 400, "extra_body": {"thinking": {"type": "enabled" if thinking else "disabled"}}}
    return client.chat.completions.create(**body, **more).choices[0]


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_schema_holds_at_any_temperature_with_and_without_thinking(client, thinking, seed):
    choice = ask(client, "Tell me about a person.", thinking=thinking, temperature=seed * 0.4, seed=seed, response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}})
    assert choice.finish_reason == "stop"
    Person.model_validate_json(choice.message.content)


def test_json_object_is_an_object(client):
    choice = ask(client, "Say anything.", temperature=1.5, seed=3, response_format={"type": "json_object"})
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)
    else:
        assert choice.finish_reason == "length"


@pytest.mark.parametrize("pattern", [r"[A-Z][a-z]{2,8} (yes|no)", r"\d{3}-\d{4}"])
def test_a_regular_expression_holds(client, pattern):
    choice = ask(client, "Say anything.", response_format={"type": "regex", "regex": pattern})
    assert re.fullmatch(pattern, choice.message.content)


def test_a_grammar_holds(client):
    choice = ask(client, "Say anything.", response_format={"type": "ebnf", "grammar": 'root ::= "<" word ("," word){1,3} ">"\nword ::= [a-z]{1,5}'})
    assert re.fullmatch(r"<[a-z]{1,5}(,[a-z]{1,5}){1,3}>", choice.message.content)


class Step(pydantic.BaseModel):
    title: str
    minutes: int


class Plan(pydantic.BaseModel):
    goal: str
    steps: list[Step]


def test_the_clients_own_models_are_parsed(client):
    reply = client.chat.completions.parse(model=MODEL, messages=[{"role": "user", "content": "Plan a walk."}], response_format=Plan, max_tokens=1500, extra_body={"thinking": {"type": "disabled"}})
    assert isinstance(reply.choices[0].message.parsed, Plan)


def test_a_strict_tool_gets_arguments_of_its_schema(client):
    choice = ask(client, "What is the weather in Paris?", tools=[WEATHER], tool_choice="required", temperature=1.0, seed=1)
    assert choice.finish_reason == "tool_calls"
    for call in choice.message.tool_calls:
        assert call.function.name == "get_weather"
        WeatherArguments.model_validate_json(call.function.arguments)


def test_a_stream_is_the_same_text(client):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "A person as json."}], "temperature": 0, "extra_body": {"thinking": {"type": "disabled"}}, "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}}
    whole = client.chat.completions.create(**body).choices[0].message.content
    parts = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**body, stream=True) if chunk.choices]
    assert "".join(parts) == whole


def test_responses_have_formats_too(client):
    reply = client.responses.create(model=MODEL, input="A person as json.", max_output_tokens=400, text={"format": {"type": "json_schema", "name": "person", "schema": PERSON}}, extra_body={"reasoning": {"effort": "none"}})
    Person.model_validate_json(reply.output_text)


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_enforced_is_an_error_that_says_where(client, stream):
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, "x", stream=stream, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert "/properties/a" in str(refused.value) and "uniqueItems" in str(refused.value)
