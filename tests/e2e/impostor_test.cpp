// A process of the same host and user that knows the job's store tries to take the place of a rank.

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <span>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "worker_lib/src/bootstrap/store_adapter.hpp"
#include "worker_lib/src/native/net/group_key.hpp"
#include "worker_lib/src/native/net/sockets.hpp"

using e2e::Seconds;

namespace {

namespace detail = ddp::detail;

std::string program(const std::string& name) { return (e2e::bin() / name).string(); }

ddprun::TimePoint soon() { return ddprun::Clock::now() + std::chrono::seconds(20); }

/// A connection to the port of a rank for sends and receives, on which the first message of the next rank was sent. The
/// sender knows all but the secret.
ddprun::UniqueFd impersonate_rank_1(const std::vector<detail::Member>& members, std::int64_t generation) {
    detail::GroupSpec spec;
    spec.name = "world";
    spec.rank = 1;
    spec.generation = generation;
    const detail::Hello hello = detail::GroupKey(spec, members).hello();
    auto socket = detail::connect_tcp(members[0].address, members[0].p2p_port, soon());
    REQUIRE(socket.has_value());
    REQUIRE(detail::send_all(socket->get(), std::as_bytes(std::span(&hello, 1)), -1, soon()).has_value());
    return std::move(*socket);
}

}  // namespace

TEST_CASE("a process that reads the store cannot connect in the name of a rank", "[e2e]") {
    const e2e::Sandbox sandbox("impostor");
    const bool has_secret = GENERATE(true, false);
    const std::string worker =
        fmt::format("echo store $MASTER_PORT.; exec {} --steps 1000000 --hidden1 64 --hidden2 32 --loss-log loss",
                    program("train"));
    e2e::Process job(sandbox, {.argv = {program("ddprun"), "--nnodes", "2", "--nproc-per-node", "1", "--local-nodes",
                                        has_secret ? "--verbose" : "--insecure", "sh", "-c", worker},
                               .directory = sandbox.path()});
    const auto steps = [&] { return e2e::read_file(sandbox.path() / "loss").size(); };
    REQUIRE(e2e::eventually(Seconds(30), [&] { return steps() > 0; }));
    const std::string out = job.out();
    const auto begin = out.find("store ") + 6;
    const std::string port = out.substr(begin, out.find('.', begin) - begin);
    ddp::Environment environment{.rank = 1, .world_size = 2, .generation = 1, .master_addr = "127.0.0.1"};
    environment.master_port = std::stoi(port);
    const auto store = detail::connect_store(environment, std::chrono::seconds(20));
    std::vector<detail::Member> members;
    for (const char* key : {"ddp/1/of-2/world/member/0", "ddp/1/of-2/world/member/1"})
        members.push_back(detail::decode_member(store->get(key, std::chrono::seconds(20))));
    CHECK(members[0].authentication == (has_secret ? detail::Member::kSecret : detail::Member::kToken));
    const ddprun::UniqueFd impostor = impersonate_rank_1(members, environment.generation);
    detail::Hello answer;
    ddprun::UniqueFd none;
    const auto answered =
        detail::receive_all(impostor.get(), std::as_writable_bytes(std::span(&answer, 1)), none, soon());
    CHECK(answered.has_value() != has_secret);  // --insecure leaves the records, which are in the store
    if (!answered) CHECK(answered.error().code != ddprun::Errc::kTimeout);  // it was closed
    const auto before = steps();
    CHECK(e2e::eventually(Seconds(30), [&] { return steps() > before; }));  // the job goes on
    job.signal(SIGTERM);
    CHECK(job.wait(Seconds(30)).exit_code() == 128 + SIGTERM);
    CAPTURE(job.out(), job.err());
    CHECK(sandbox.leftovers() == "");
}
