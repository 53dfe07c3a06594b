// The store against the reference: random sequences of requests of eight clients, by seed. A failure prints its seed.
// DDPRUN_SEED=n runs that one alone, from n on: DDPRUN_SEED=n DDPRUN_SEEDS=1000.
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/engine/scenario.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"

namespace ddprun::store::test {
namespace {

constexpr int kSteps = 500;

class RandomChoices final : public Choices {
public:
    explicit RandomChoices(std::uint32_t seed) : random_(seed) {}
    std::uint32_t below(std::uint32_t bound) override {
        return static_cast<std::uint32_t>(std::uint64_t{random_()} * bound >> 32);
    }

private:
    std::mt19937 random_;
};

Options options_of(OlderDialect older, std::uint32_t seed) {
    Options options;
    options.older_dialect = older;
    options.hash_seed = {seed, 1};
    options.keys_at_once = 1 + seed % 5;
    if (seed % 2 == 1) options.limits = Scenario::tight_limits();
    return options;
}

/// The first thing that is wrong, and at which step.
std::string run(OlderDialect older, std::uint32_t seed, int steps) {
    RandomChoices choices(seed);
    Scenario scenario(choices, options_of(older, seed));
    for (int step = 0; step < steps; ++step) {
        scenario.step();
        if (!scenario.broken().empty()) return "step " + std::to_string(step) + ": " + scenario.broken();
    }
    scenario.finish();
    return scenario.broken();
}

std::uint32_t setting(const char* name, std::uint32_t otherwise) {
    const char* const text = std::getenv(name);
    return text ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : otherwise;
}

void run_seeds(OlderDialect older) {
    const std::uint32_t first = setting("DDPRUN_SEED", 1);
    const std::uint32_t count = setting("DDPRUN_SEEDS", std::getenv("DDPRUN_SEED") ? 1 : 70);
    for (std::uint32_t seed = first; seed - first < count; ++seed) {
        CAPTURE(seed);
        REQUIRE(run(older, seed, kSteps) == "");
    }
}

TEST_CASE("property: the store behaves as the reference does, with modern clients") { run_seeds(OlderDialect::kNone); }

TEST_CASE("property: the store behaves as the reference does, with clients of 1.13 among them") {
    run_seeds(OlderDialect::kV1_13);
}

TEST_CASE("property: the store behaves as the reference does, with clients of 2.1 among them") {
    run_seeds(OlderDialect::kV2_1);
}

/// One request of each kind, in the codes of a dialect; for the modern one after VALIDATE.
std::vector<std::string> one_of_each(OlderDialect dialect) {
    const std::string key = bytes("/a");
    const std::string list = number(2) + bytes("/a") + bytes("");
    const std::vector<std::pair<int, std::string>> requests{{1, key + bytes("7")},
                                                            {2, key + bytes("7") + bytes("8")},
                                                            {3, key},
                                                            {4, key + number(-3)},
                                                            {5, list},
                                                            {6, list},
                                                            {7, ""},
                                                            {8, key},
                                                            {9, key + bytes("x")},
                                                            {10, list},
                                                            {11, number(2) + key + bytes("1") + bytes("") + bytes("")},
                                                            {12, ""},
                                                            {13, "nonc"},
                                                            {14, key + bytes("e")},
                                                            {15, key},
                                                            {16, key},
                                                            {17, ""},
                                                            {18, bytes("/b") + number(2)}};
    std::vector<std::string> all;
    for (const auto& [code, fields] : requests) {
        const bool older = dialect != OlderDialect::kNone;
        if (dialect == OlderDialect::kV2_1 && code > 12) continue;
        if (dialect == OlderDialect::kV1_13 && code > 8) continue;
        const bool shifted = older && !(dialect == OlderDialect::kV1_13 && code == 8);
        all.push_back(static_cast<char>(shifted ? code - 1 : code) + fields);
    }
    return all;
}

TEST_CASE("R1: a request of each kind, cut in two at every byte, in each dialect") {
    const auto dialect = GENERATE(OlderDialect::kNone, OlderDialect::kV1_13, OlderDialect::kV2_1);
    Options options;
    options.older_dialect = dialect;
    const std::string begin = dialect == OlderDialect::kNone ? validate() : std::string{};
    for (const std::string& request : one_of_each(dialect)) {
        const std::string set = one_of_each(dialect).front();
        const std::string all = begin + set + request + request;
        for (std::size_t cut = 0; cut <= all.size(); ++cut) {
            CAPTURE(static_cast<int>(request[0]), cut);
            SocketlessServer server(options);
            ReferenceStore reference(options);
            for (const std::string& piece : {all.substr(0, cut), all.substr(cut)}) {
                server.receive(1, piece, 99);
                reference.receive(1, piece);
            }
            reference.serve(1, 99);
            REQUIRE_FALSE(server.is_closed(1));
            REQUIRE(server.engine().key_count() == reference.keys().size());
            REQUIRE(reference.take_sent(1, server.send(1, 10'000)));
        }
    }
}

}  // namespace
}  // namespace ddprun::store::test
