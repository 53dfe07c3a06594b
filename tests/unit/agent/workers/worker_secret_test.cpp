// The secret of a worker group, from the agent's side to the worker's.
#include "agent/workers/worker_secret.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "tests/catch.hpp"
#include "worker_lib/src/bootstrap/take_secret.hpp"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

std::string text_of(const worker_secret::Secret& secret) { return {secret.begin(), secret.end()}; }

const std::string kKey(64, 'a');

}  // namespace

TEST_CASE("each generation of each job has a secret of its own", "[worker_secret][unit]") {
    const auto secret = derive_worker_secret(kKey, Generation{1});
    CHECK(derive_worker_secret(kKey, Generation{1}) == secret);
    CHECK(derive_worker_secret(kKey, Generation{2}) != secret);
    CHECK(derive_worker_secret(std::string(64, 'b'), Generation{1}) != secret);
}

TEST_CASE("a worker reads its secret once, and closes the descriptor", "[worker_secret][unit]") {
    const auto secret = derive_worker_secret(kKey, Generation{1});
    auto memory = make_secret_memory(secret);
    REQUIRE(memory.has_value());
    CHECK((::fcntl(memory->get(), F_GETFD) & FD_CLOEXEC) != 0);
    std::array<char, 1> byte{'x'};
    CHECK(::pwrite(memory->get(), byte.data(), 1, 0) == -1);
    CHECK(::ftruncate(memory->get(), 0) == -1);

    const int worker_end = ::dup(memory->get());
    std::string problem;
    CHECK(ddp::detail::read_secret(worker_end, problem) == text_of(secret));
    CHECK(::fcntl(worker_end, F_GETFD) == -1);
    CHECK(ddp::detail::read_secret(worker_end, problem).empty());
    CHECK(problem == "there is no such descriptor");
}

TEST_CASE("a secret is recognised by its seals, also if the kernel has added one", "[worker_secret][unit]") {
    const UniqueFd memory(::memfd_create("secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::string bytes(sizeof(worker_secret::Secret), 'x');
    REQUIRE(::pwrite(memory.get(), bytes.data(), bytes.size(), 0) == std::ssize(bytes));
    REQUIRE(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);  // in place of F_SEAL_EXEC
    REQUIRE(::fcntl(memory.get(), F_ADD_SEALS, worker_secret::kSeals) == 0);
    std::string problem;
    CHECK(ddp::detail::read_secret(::dup(memory.get()), problem) == bytes);
}

TEST_CASE("a descriptor that is no secret is left alone", "[worker_secret][unit]") {
    std::string problem;
    CHECK(ddp::detail::read_secret(0, problem).empty());  // never one of the standard ones
    const std::string bytes(32, 'x');
    UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::pwrite(unsealed.get(), bytes.data(), bytes.size(), 0) == 32);
    UniqueFd longer(::memfd_create("longer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(longer.get(), 33) == 0);
    REQUIRE(::fcntl(longer.get(), F_ADD_SEALS, worker_secret::kSeals) == 0);
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const UniqueFd pipe_end(ends[0]);
    const UniqueFd other_end(ends[1]);
    for (const int descriptor : {unsealed.get(), longer.get(), pipe_end.get()}) {
        CHECK(ddp::detail::read_secret(descriptor, problem).empty());
        CHECK(problem == "it is not a secret of ddprun");
        CHECK(::fcntl(descriptor, F_GETFD) != -1);
    }
}
