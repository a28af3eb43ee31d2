"""Asks a server through the real `openai` client, as programs of others do. Ends with status 0 where all is right.

usage: serve_client.py PORT   the models are "mine" (it knows three answers by heart) and "de" (a translator)
"""
import json
import sys

import openai

client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="none", max_retries=0)
HELLO = [{"role": "user", "content": "Say hello."}]
WEATHER = [{"role": "user", "content": "Weather in Rome?"}]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]


def chat(messages, **more):
    return client.chat.completions.create(model="mine", messages=messages, temperature=0, **more)


def refused(kind, **body):
    try:
        chat(HELLO, **body)
    except kind as error:
        return error
    raise AssertionError(f"{body} was not refused")


def models():
    assert [model.id for model in client.models.list()] == ["mine", "de"]
    assert client.models.retrieve("mine").object == "model"


def chats():
    answer = chat(HELLO)
    assert answer.choices[0].message.content == "Hello there, my friend.", answer
    assert answer.choices[0].message.role == "assistant" and answer.choices[0].finish_reason == "stop", answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion", answer
    again = chat(HELLO + [{"role": "assistant", "content": answer.choices[0].message.content}] + HELLO)
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens
    assert again.usage.prompt_tokens_details.cached_tokens >= 0
    short = chat(HELLO, max_completion_tokens=2)
    assert short.choices[0].finish_reason == "length" and short.usage.completion_tokens == 2, short
    stopped = chat(HELLO, stop=[" my"])
    assert stopped.choices[0].message.content == "Hello there,", stopped
    assert stopped.choices[0].finish_reason == "stop", stopped


def streams():
    stream = chat(HELLO, stream=True, stream_options={"include_usage": True})
    text, reasons, usage = "", [], None
    for chunk in stream:
        assert chunk.object == "chat.completion.chunk"
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert text == "Hello there, my friend." and reasons == ["stop"], (text, reasons)
    assert usage.completion_tokens > 3, usage
    with client.chat.completions.stream(model="mine", messages=HELLO, temperature=0) as events:
        assert events.get_final_completion().choices[0].message.content == text


def thinking():
    answer = chat([{"role": "user", "content": "Think."}]).choices[0].message
    assert answer.content == "It is four.", answer
    assert answer.reasoning_content == "Two and two.", answer
    text = thoughts = ""
    for chunk in chat([{"role": "user", "content": "Think."}], stream=True):
        text += chunk.choices[0].delta.content or ""
        thoughts += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
    assert (text, thoughts) == ("It is four.", "Two and two."), (text, thoughts)
    longer = chat(HELLO, extra_body={"chat_template_kwargs": {"enable_thinking": False}}, max_tokens=1)
    assert longer.usage.prompt_tokens > chat(HELLO, max_tokens=1).usage.prompt_tokens, "an empty <think> block"


def tools():
    answer = chat(WEATHER, tools=TOOLS)
    assert answer.choices[0].finish_reason == "tool_calls", answer
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Rome"}, call
    assert answer.choices[0].message.content is None, answer
    streamed, reason = [], None
    for chunk in chat(WEATHER, tools=TOOLS, stream=True):
        assert not chunk.choices[0].delta.content, chunk
        streamed += chunk.choices[0].delta.tool_calls or []
        reason = chunk.choices[0].finish_reason or reason
    assert len(streamed) == 1 and streamed[0].index == 0 and reason == "tool_calls", streamed
    assert json.loads(streamed[0].function.arguments) == {"city": "Rome"}, streamed
    history = WEATHER + [
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}]
    assert chat(history, tools=TOOLS, max_tokens=5).usage.prompt_tokens > answer.usage.prompt_tokens
    plain = chat(WEATHER, tools=TOOLS, tool_choice="none")
    assert plain.choices[0].message.tool_calls is None, plain


def probabilities():
    answer = chat(HELLO, logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    whole = "".join(token.token for token in tokens)  # with the empty <think> block, which is no content
    assert whole.endswith("Hello there, my friend."), tokens
    for token in tokens:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token, "greedy"
        assert bytes(token.bytes).decode() == token.token


def several():
    answer = client.chat.completions.create(model="mine", messages=HELLO, n=3, seed=1, temperature=1.5, max_tokens=8)
    again = client.chat.completions.create(model="mine", messages=HELLO, n=3, seed=1, temperature=1.5, max_tokens=8)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [c.message.content for c in answer.choices] == [c.message.content for c in again.choices]
    texts = client.completions.create(model="mine", prompt=["Hello", "It"], max_tokens=4, temperature=0, logprobs=2)
    assert len(texts.choices) == 2 and len(texts.choices[0].logprobs.tokens) == 4, texts
    assert texts.choices[0].logprobs.text_offset[0] == 0


def embeddings():
    vectors = client.embeddings.create(model="mine", input=["Hello", "It is"]).data
    assert len(vectors) == 2 and len(vectors[0].embedding) == 64, len(vectors[0].embedding)
    plain = client.embeddings.create(model="mine", input="Hello", encoding_format="float").data[0].embedding
    assert all(abs(a - b) < 1e-6 for a, b in zip(plain, vectors[0].embedding))


def errors():
    error = refused(openai.BadRequestError, frequency_penalty=0.5)
    assert error.param == "frequency_penalty" and "repetition_penalty" in error.message, error
    assert refused(openai.BadRequestError, response_format={"type": "json_object"}).param == "response_format"
    assert refused(openai.BadRequestError, extra_body={"tempratur": 1}).code == "unknown_parameter"
    assert refused(openai.BadRequestError, max_tokens=10**6).param == "max_tokens"
    try:
        client.chat.completions.create(model="other", messages=HELLO)
        raise AssertionError("there is no such model")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error
    try:
        chat([{"role": "user", "content": "word " * 2000}])
        raise AssertionError("that does not fit")
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded", error


for check in (models, chats, streams, thinking, tools, probabilities, several, embeddings, errors):
    check()
    print("ok", check.__name__)
