"""LangChain's standard tests of chat models, run by frameworks.ts with pytest: as chat,
responses and messages."""
import os

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

ADDRESS, KEY, MODEL = (os.environ[name] for name in ("ADDRESS", "KEY", "MODEL"))
OF_OPENAI = {
    "model": MODEL,
    "base_url": f"{ADDRESS}/v1",
    "api_key": KEY,
}


class TestChat(ChatModelIntegrationTests):
    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {**OF_OPENAI, "stream_usage": True}

    @property
    def supports_image_inputs(self):
        return True

    @property
    def supports_image_tool_message(self):
        return True

    @property
    def supports_json_mode(self):
        return True


class TestResponses(TestChat):
    @property
    def chat_model_params(self):
        return {**OF_OPENAI, "use_responses_api": True}


class TestMessages(ChatModelIntegrationTests):
    @property
    def chat_model_class(self):
        return ChatAnthropic

    @property
    def chat_model_params(self):
        return {
            "model": MODEL,
            "base_url": ADDRESS,
            "api_key": KEY,
        }

    @property
    def supports_image_inputs(self):
        return True
