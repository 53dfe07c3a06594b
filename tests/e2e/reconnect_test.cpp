// A control connection that breaks and is made again at once does not disturb the job.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/proxy.hpp"

using Catch::Contains;

namespace {

std::ptrdiff_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

}  // namespace

TEST_CASE("a node whose connection to the daemon is cut goes on when it can connect again", "[e2e]") {
    const e2e::Sandbox sandbox("reconnect");
    const auto port = static_cast<std::uint16_t>(e2e::free_port());
    e2e::Proxy proxy(port);
    const std::string script =
        "echo generation $DDPRUN_GENERATION; while [ ! -e end ]; do sleep 0.05; done; exit $CODE";
    const int code = GENERATE(0, 3);
    CAPTURE(code);
    const auto node = [&](std::uint16_t at, const std::string& conf) {
        return e2e::Command{.argv = {(e2e::bin() / "ddprun").string(), "--nnodes", "2", "--rdzv-endpoint",
                                     fmt::format("127.0.0.1:{}", at), "--rdzv-conf", conf, "sh", "-c", script},
                            .env = {{"CODE", std::to_string(code)}},
                            .directory = sandbox.path()};
    };
    e2e::Process first(sandbox, node(port, "is_host=1"));
    REQUIRE(e2e::eventually(e2e::Seconds(20),
                            [&] { return first.err().find("1 of 2 nodes are here") != std::string::npos; }));
    e2e::Process second(sandbox, node(proxy.port(), "is_host=0"));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines(first.out()) == 1 && lines(second.out()) == 1; }));
    for (int cut = 1; cut <= 3; ++cut) {
        REQUIRE(proxy.cut() == 1);
        REQUIRE(e2e::eventually(e2e::Seconds(20), [&] {
            std::size_t count = 0;
            const std::string text = second.err();
            for (std::size_t at = 0; (at = text.find("rendezvous daemon again", at)) != std::string::npos; ++at)
                ++count;
            return count == static_cast<std::size_t>(cut);
        }));
    }
    e2e::write_file(sandbox.path() / "end", "");
    CHECK(first.wait(e2e::Seconds(20)).exit_code() == code);
    CHECK(second.wait(e2e::Seconds(20)).exit_code() == code);
    CAPTURE(first.err(), second.err());
    CHECK(first.out() == "generation 1\n");
    CHECK(second.out() == "generation 1\n");
    CHECK_THAT(second.err(), Contains("lost the rendezvous daemon at") && Contains("connecting again"));
    CHECK(sandbox.leftovers() == "");
}
