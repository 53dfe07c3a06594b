// The verdict names the rank that failed first, also when its process ends last.

#include <algorithm>
#include <filesystem>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using Catch::Contains;

namespace {

// Rank 2 raises. Its peers notice its loss somewhat later, and long before its process has ended, as with an
// interpreter that unloads slowly. Its agent gives it a second from the end of the first peer on: if that is too short
// on a busy machine there is a file "late".
constexpr const char* kScript = R"py(import atexit, os, signal, time
def unload():
    time.sleep(0.6)
    open('gone', 'w').close()
    time.sleep(0.4)
if os.environ['RANK'] == '2':
    signal.signal(signal.SIGTERM, lambda *_: open('late', 'w').close())
    atexit.register(unload)
    raise ValueError('loss is nan')
while not os.path.exists('gone'): time.sleep(0.005)
raise RuntimeError(os.environ['ERROR_TEXT'])
)py";

}  // namespace

TEST_CASE("the rank that raised is the culprit, not the peers that failed of it and ended sooner", "[e2e]") {
    const e2e::Sandbox sandbox("culprit");
    const auto shape = GENERATE(values<std::vector<std::string>>(
        {{"--nproc-per-node", "4"}, {"--nnodes", "2", "--local-nodes", "--nproc-per-node", "2"}}));
    const auto text = GENERATE(as<std::string>(), "Connection closed by peer [127.0.0.1]:4711", "the barrier failed");
    CAPTURE(shape, text);
    e2e::write_file(sandbox.path() / "train.py", kScript);
    std::vector<std::string> argv{(e2e::bin() / "ddprun").string()};
    argv.insert(argv.end(), shape.begin(), shape.end());
    argv.push_back("train.py");
    e2e::Outcome outcome;
    for (int tries = 0; tries < 3; ++tries) {
        for (const char* const file : {"gone", "late"}) std::filesystem::remove(sandbox.path() / file);
        outcome = e2e::run(sandbox, {.argv = argv, .env = {{"ERROR_TEXT", text}}, .directory = sandbox.path()},
                           e2e::Seconds(60));
        if (!std::filesystem::exists(sandbox.path() / "late")) break;
    }
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 1);
    const std::string box =
        outcome.err.substr(std::min(outcome.err.find("train.py (python3) FAILED"), outcome.err.size()));
    CHECK_THAT(box, Contains("rank 2 on ") && Contains("rank        : 2 (") && Contains("ValueError: loss is nan"));
    CHECK_THAT(box, Contains("exited with code 1"));
    CHECK(sandbox.leftovers() == "");
}
