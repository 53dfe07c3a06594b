// An unmodified PyTorch script trains under ddprun.

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/e2e/ddp_script.hpp"
#include "tests/e2e/process.hpp"

TEST_CASE("an unmodified DistributedDataParallel script trains on two emulated nodes", "[e2e]") {
    const e2e::Sandbox sandbox("pytorch");
    if (!e2e::torch_is_installed(sandbox)) {
        WARN("SKIPPED: python3-torch is not installed");
        return;
    }
    e2e::write_file(sandbox.path() / "script.py", e2e::kDdpScript);
    const auto outcome = e2e::run(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--nnodes", "2",
                                                     "--nproc_per_node", "2", "--local-nodes", "script.py"},
                                            .directory = sandbox.path()});
    CAPTURE(outcome.out, outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    e2e::check_ddp_output(outcome.out, 4);
    CHECK(sandbox.leftovers() == "");
}
