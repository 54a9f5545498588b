"""An agent framework (pydantic-ai) runs conversations with tools over all three APIs, streaming and not.

The bundled model is small: it calls the tool for a question about the weather, which is what these conversations need."""

from __future__ import annotations

import asyncio

import anthropic
import openai
import pydantic_ai
import pytest
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from conftest import MODEL, PATIENCE

QUESTION = "What is the weather in Paris?"
NO_THINKING = {"thinking": {"type": "disabled"}}


def make_model(server, api: str):
    """A model and the settings that make it greedy and keep it from thinking."""
    if api == "messages":
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0, timeout=PATIENCE)
        return AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=client)), {"temperature": 0.0, "max_tokens": 300, "extra_body": NO_THINKING}
    client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE)
    provider = OpenAIProvider(openai_client=client)
    if api == "chat":
        return OpenAIChatModel(MODEL, provider=provider), {"temperature": 0.0, "max_tokens": 300, "extra_body": NO_THINKING}
    return OpenAIResponsesModel(MODEL, provider=provider), {"temperature": 0.0, "max_tokens": 300, "extra_body": {"reasoning": {"effort": "none"}}}


class Conversation:
    """An agent with one tool; remembers the calls and the messages."""

    def __init__(self, server, api: str, stream: bool):
        self.stream = stream
        self.cities: list[str] = []
        self.history: list = []
        model, settings = make_model(server, api)
        self.agent = pydantic_ai.Agent(model, model_settings=settings)

        @self.agent.tool_plain
        def get_weather(city: str) -> str:
            """Get the current weather in a city

            Args:
                city: Name of the city
            """
            self.cities.append(city)
            return '{"temperature": 21, "condition": "sunny"}'

    async def ask(self, question: str) -> str:
        if not self.stream:
            result = await self.agent.run(question, message_history=self.history)
            self.history = result.all_messages()
            return result.output
        async with self.agent.run_stream(question, message_history=self.history) as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
            self.history = result.all_messages()
        return "".join(pieces)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_a_conversation_with_tools(server, api, stream):
    async def talk() -> None:
        conversation = Conversation(server, api, stream)
        first = await conversation.ask(QUESTION)
        assert first and conversation.cities == ["Paris"]
        second = await conversation.ask("What is the weather in Tokyo?")
        assert second and conversation.cities == ["Paris", "Tokyo"]
        third = await conversation.ask("What is the capital of France?")
        assert third
        requests = [message for message in conversation.history if message.kind == "request"]
        assert len(requests) >= 5  # three questions and two tool results

    asyncio.run(talk())
    server.wait_until_quiet()


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_streamed_and_whole_conversations_are_the_same(server, api):
    async def texts(stream: bool) -> list[str]:
        conversation = Conversation(server, api, stream)
        return [await conversation.ask(QUESTION), await conversation.ask("What is the weather in Tokyo?")]

    assert asyncio.run(texts(False)) == asyncio.run(texts(True))
