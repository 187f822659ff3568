"""SandboxdWorkspace of pydantic-ai-backend 0.2.37, unmodified, as the workspace of a Pydantic AI agent.

The agent's model is a function: it calls the tools in order and answers with what the last one returned, so no network
is used but the service's own.
"""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_backends import ConsoleCapability, SandboxdWorkspace
from pydantic_ai_backends.permissions import PERMISSIVE_RULESET

from daemon import TOKEN


def returns(messages: list[ModelMessage]) -> list[str]:
    """What the tools have returned since the last prompt."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    prompts = [at for at, part in enumerate(parts) if part.part_kind == "user-prompt"]
    since = parts[prompts[-1] :]
    return [str(part.content) for part in since if isinstance(part, ToolReturnPart)]


def model(*calls: tuple[str, dict]) -> FunctionModel:
    """A model that makes these calls one after the other, then says what they returned."""

    def next_step(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = returns(messages)
        if len(done) < len(calls):
            name, arguments = calls[len(done)]
            offered = {tool.name for tool in info.function_tools}
            assert name in offered, f"{name} is not among {offered}"
            return ModelResponse(parts=[ToolCallPart(name, arguments)])
        return ModelResponse(parts=[TextPart("\n---\n".join(done))])

    return FunctionModel(next_step)


def agent(daemon) -> Agent:
    workspace = SandboxdWorkspace(service_url=daemon.url, token=TOKEN)
    return Agent(capabilities=[workspace, ConsoleCapability(permissions=PERMISSIVE_RULESET)])


def test_an_agent_writes_a_file_runs_it_and_reads_the_result(daemon):
    script = "total = sum(range(101))\nopen('total.txt', 'w').write(f'{total}\\n')\nprint('wrote', total)\n"
    calls = model(
        ("write_file", {"path": "sum.py", "content": script}),
        ("execute", {"command": "python3 sum.py"}),
        ("read_file", {"path": "total.txt"}),
        ("ls", {"path": "."}),
        ("grep", {"pattern": "total", "path": "."}),
    )
    result = agent(daemon).run_sync("add the numbers up to 100", model=calls)
    wrote, ran, read, listed, found = result.output.split("\n---\n")
    assert wrote == "Wrote 3 lines to sum.py"
    assert ran == "wrote 5050\n"
    assert "5050" in read and not read.startswith("Error")
    assert "sum.py" in listed and "total.txt" in listed
    assert "sum.py" in found


def test_a_second_run_with_the_history_finds_the_files(daemon):
    one = agent(daemon)
    first = one.run_sync(
        "remember", model=model(("write_file", {"path": "note.txt", "content": "the answer is 42\n"}))
    )
    second = one.run_sync(
        "recall",
        model=model(("execute", {"command": "cat note.txt"})),
        message_history=first.all_messages(),
    )
    assert second.output == "the answer is 42\n"


def test_an_agent_edits(daemon):
    calls = model(
        ("write_file", {"path": "a.txt", "content": "red\nblue\n"}),
        ("read_file", {"path": "a.txt"}),
        ("edit_file", {"path": "a.txt", "old_string": "blue", "new_string": "green"}),
        ("execute", {"command": "cat a.txt; exit 3"}),
    )
    result = agent(daemon).run_sync("paint", model=calls)
    assert result.output.endswith("Command failed (exit code 3):\nred\ngreen\n")
