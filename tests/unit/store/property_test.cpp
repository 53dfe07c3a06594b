// The store against the reference: random sequences of requests of eight clients, by seed. A failure prints its seed.
// DDPRUN_SEED=n runs that one alone, from n on: DDPRUN_SEED=n DDPRUN_SEEDS=1000.
#include <cstdlib>
#include <random>

#include "tests/catch.hpp"
#include "tests/unit/store/scenario.hpp"

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

TEST_CASE("property: the store does what the protocol asks for, with modern clients") {
    run_seeds(OlderDialect::kNone);
}

TEST_CASE("property: the store does what the protocol asks for, with clients of 1.13 among them") {
    run_seeds(OlderDialect::kV1_13);
}

TEST_CASE("property: the store does what the protocol asks for, with clients of 2.1 among them") {
    run_seeds(OlderDialect::kV2_1);
}

}  // namespace
}  // namespace ddprun::store::test
