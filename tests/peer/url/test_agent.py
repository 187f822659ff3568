"""RemoteSandbox of 0.2.29, unmodified, under an agent's console tools and under the package's SessionManager.

The agent's model is a function that calls the tools it is told to, so no network is used but the service's own.
"""

import asyncio
import os
import uuid

import httpx
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_backends import ConsoleCapability, SessionManager
from pydantic_ai_backends.permissions import PERMISSIVE_RULESET
from pydantic_ai_backends.remote import RemoteSandbox

URL, TOKEN = os.environ["SANDBOXD_URL"], os.environ["SANDBOXD_TOKEN"]


def open_sessions() -> set[str]:
    rows = httpx.get(f"{URL}/sessions", headers={"X-Sandbox-Token": TOKEN}, timeout=30).json()["sessions"]
    return {row["session_id"] for row in rows}


def returned(messages: list[ModelMessage]) -> list[str]:
    """What the tools have returned since the last prompt."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    prompt = max(at for at, part in enumerate(parts) if part.part_kind == "user-prompt")
    return [str(part.content) for part in parts[prompt:] if isinstance(part, ToolReturnPart)]


def model(*calls: tuple[str, dict]) -> FunctionModel:
    """A model that makes these calls one after the other, then says what they returned."""

    def step(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = returned(messages)
        if len(done) < len(calls):
            name, arguments = calls[len(done)]
            assert name in {tool.name for tool in info.function_tools}
            return ModelResponse(parts=[ToolCallPart(name, arguments)])
        return ModelResponse(parts=[TextPart("\n---\n".join(done) or "no tool was needed")])

    return FunctionModel(step)


def test_a_session_is_opened_by_the_first_prompt_that_needs_a_tool():
    name = f"agent-{uuid.uuid4().hex[:12]}"
    sandbox = RemoteSandbox(URL, token=TOKEN, session_id=name)
    agent = Agent(capabilities=[ConsoleCapability(backend=sandbox, permissions=PERMISSIVE_RULESET)])

    assert agent.run_sync("say hello", model=model()).output == "no tool was needed"
    assert name not in open_sessions()

    script = "print(sum(range(101)))\n"
    calls = model(
        ("write_file", {"path": "sum.py", "content": script}),
        ("execute", {"command": "python3 sum.py"}),
        ("edit_file", {"path": "sum.py", "old_string": "101", "new_string": "11"}),
        ("execute", {"command": "python3 sum.py"}),
        ("read_file", {"path": "sum.py"}),
        ("ls", {"path": "/workspace"}),
        ("glob", {"pattern": "*.py", "path": "/workspace"}),
        ("grep", {"pattern": "range", "path": "/workspace"}),
        ("execute", {"command": "exit 3"}),
    )
    said = agent.run_sync("add the numbers", model=calls).output.split("\n---\n")
    assert name in open_sessions()
    wrote, first, edited, second, read, listed, globbed, found, failed = said
    assert not wrote.startswith("Error") and not edited.startswith("Error")
    assert "5050" in first and "55" in second
    assert "range(11)" in read
    assert all("sum.py" in text for text in (listed, globbed, found))
    assert "exit code 3" in failed
    sandbox.stop(purge=True)
    assert name not in open_sessions()


def test_the_session_manager_drives_remote_sandboxes():
    prefix = f"managed-{uuid.uuid4().hex[:8]}"
    manager = SessionManager(
        sandbox_factory=lambda session: RemoteSandbox(URL, token=TOKEN, session_id=f"{prefix}-{session}"),
    )

    async def drive() -> None:
        one, two = await asyncio.gather(manager.get_or_create("one"), manager.get_or_create("two"))
        assert await manager.get_or_create("one") is one
        assert {f"{prefix}-one", f"{prefix}-two"} <= open_sessions()
        one.write("mine.txt", "one")
        assert one.execute("cat mine.txt").output == "one"
        assert not two.exists("mine.txt")
        await manager.release("two")
        assert f"{prefix}-two" not in open_sessions()
        await manager.shutdown()
        assert f"{prefix}-one" not in open_sessions()

    asyncio.run(drive())
