"""The suite that Pydantic AI publishes for workspace backends, over SandboxdWorkspace and the built binary."""

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from pydantic_ai_backends import SandboxdWorkspace

from daemon import TOKEN


class TestWorkspaceOverTheService(WorkspaceBackendSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def anyio_backend(cls):
        return "asyncio"

    @pytest.fixture(scope="class")
    @classmethod
    def capability(cls, daemon):
        return SandboxdWorkspace(service_url=daemon.url, token=TOKEN)

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, capability):
        return capability.backend()

    @pytest.fixture
    def fresh_backend(self, capability):
        return capability.backend

    @pytest.fixture
    def attach_backend(self, capability):
        return capability.backend

    @pytest.fixture
    def destroy_environment(self, capability):
        async def destroy(backend):
            await capability.destroy(backend.ref)

        return destroy
