// Fuzz target: decoder, engine and replies together. The input chooses the actions of eight clients
// (tests/unit/rendezvous/store/engine/scenario); the store must behave as the reference, count its bytes right, and
// hold no more memory than its contents.
#include <cstdint>

#include "tests/fuzz/check.hpp"
#include "tests/unit/rendezvous/store/engine/scenario.hpp"

namespace {

using namespace ddprun::store;
using namespace ddprun::store::test;

/// One or two bytes for a choice; zeros when the input is used up.
class InputChoices final : public Choices {
public:
    InputChoices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    std::uint32_t below(std::uint32_t bound) override {
        std::uint32_t number = next();
        if (bound > 256) number = number << 8 | next();
        if (bound > 65536) number = number << 8 | next();
        return number % bound;
    }
    [[nodiscard]] bool empty() const { return size_ == 0; }

private:
    std::uint32_t next() {
        if (size_ == 0) return 0;
        --size_;
        return *data_++;
    }
    const std::uint8_t* data_;
    std::size_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    InputChoices choices(data, size);
    Options options;
    options.older_dialect = static_cast<OlderDialect>(choices.below(3));
    options.keys_at_once = 2;
    if (choices.one_in(2)) options.limits = Scenario::tight_limits();
    Scenario scenario(choices, options);
    while (!choices.empty()) {
        scenario.step();
        check(scenario.broken().empty(), scenario.broken());
    }
    scenario.finish();
    check(scenario.broken().empty(), scenario.broken());
    return 0;
}
