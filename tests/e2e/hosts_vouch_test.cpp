// --store-vouch between virtual hosts: another user of a node of the job does not reach its store.

#include <string>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"

using e2e::eventually;
using e2e::Seconds;

namespace {

/// A worker that sends an echo request to the store and prints the answer, then runs until there is a file `end`.
constexpr const char* kStoreWorker =
    R"sh(exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT
printf '\0\xce\xf7\x85\x3c\x0dping' >&3
echo "rank $RANK at $MASTER_ADDR $MASTER_PORT. answer $(head -c 4 <&3)"
until [ -e end ]; do sleep 0.05; done)sh";

std::vector<std::string> job_with_store(bool vouch) {
    std::vector<std::string> line{(e2e::bin() / "ddprun").string(), "--nnodes", "2", "--rdzv-endpoint", "n1:29400"};
    if (vouch) line.emplace_back("--store-vouch");
    line.insert(line.end(), {"bash", "-c", kStoreWorker});
    return line;
}

bool has_answer(const e2e::Process& process) { return process.out().find("answer ping") != std::string::npos; }

}  // namespace

TEST_CASE("with --store-vouch another user of a node of the job does not reach the store", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const bool vouch = GENERATE(true, false);
    const e2e::Sandbox sandbox("vouch");
    {
        const e2e::Hosts hosts(sandbox, 2);
        e2e::Process second(sandbox, hosts.on("n2", job_with_store(vouch)));
        e2e::Process first(sandbox, hosts.on("n1", job_with_store(vouch)));
        const bool running = eventually(Seconds(30), [&] { return has_answer(first) && has_answer(second); });
        CAPTURE(first.out(), first.err(), second.out(), second.err());
        REQUIRE(running);
        const std::string out = second.out();
        const auto begin = out.find(" at ") + 4;
        std::string store = out.substr(begin, out.find('.', out.find(' ', begin)) - begin);
        store[store.find(' ')] = '/';
        const std::string ping =
            "exec 3<>/dev/tcp/" + store + R"( && printf '\0\xce\xf7\x85\x3c\x0dping' >&3 && head -c 4 <&3)";
        const auto answer_to = [&](std::vector<std::string> argv) {
            return e2e::run(sandbox, hosts.on("n2", std::move(argv)), Seconds(20)).out;
        };
        CHECK(answer_to({"bash", "-c", ping}) == "ping");
        CHECK(answer_to({"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "bash", "-c", ping}) ==
              (vouch ? "" : "ping"));
        e2e::write_file(sandbox.path() / "end", "");
        CHECK(first.wait(Seconds(30)).exit_code() == 0);
        CHECK(second.wait(Seconds(30)).exit_code() == 0);
        if (vouch)
            CHECK_THAT(first.err(), Catch::Contains("a TCPStore client that is a process of user 65534, not of the "
                                                    "user of the job (--store-vouch)"));
    }
    CHECK(sandbox.leftovers() == "");
}
