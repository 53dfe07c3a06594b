#include "worker_lib/src/tuning/staging_choice.hpp"

#include <cstring>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/kernels/stream_copy.hpp"

using ddp::detail::StagingChoice;

namespace {

constexpr std::size_t kBytes = 3 * StagingChoice::kLeast;

/// Returns how many of `operations` streamed, where streaming takes `streamed` seconds and the other way `plain`.
int streamed_of(StagingChoice& choice, int operations, double streamed, double plain, std::size_t bytes = kBytes) {
    int count = 0;
    for (int i = 0; i < operations; ++i) {
        const bool streams = choice.streams(bytes);
        choice.took(streams, streams ? streamed : plain, bytes);
        count += streams ? 1 : 0;
    }
    return count;
}

}  // namespace

TEST_CASE("staging takes the faster way, and follows when that becomes the other one", "[native][unit]") {
    StagingChoice choice;
    CHECK(streamed_of(choice, 320, 1, 2) >= 300);
    CHECK(streamed_of(choice, 320, 2, 1) <= 100);  // it has to notice first
    CHECK(streamed_of(choice, 320, 2, 1) <= 20);
}

TEST_CASE("one time that was disturbed, and the first of all, change no choice about staging", "[native][unit]") {
    StagingChoice choice;
    choice.took(choice.streams(kBytes), 0.1, kBytes);  // as if plain were faster
    CHECK(streamed_of(choice, 12, 1, 2) >= 9);
    choice.took(true, 10, kBytes);
    CHECK(streamed_of(choice, 15, 1, 2) == 13);  // the other way has a turn of two
}

TEST_CASE("a program's beginning, in which one way was disturbed, decides about few operations", "[native][unit]") {
    const auto begun = [](double streamed, double plain) {
        StagingChoice choice;
        streamed_of(choice, 4, streamed, plain);
        return choice;
    };
    StagingChoice near = begun(2, 3);  // in truth plain takes 1
    CHECK(streamed_of(near, 36, 2, 1) <= 6);
    StagingChoice far = begun(3, 2);  // in truth streaming takes 1
    CHECK(streamed_of(far, 56, 1, 2) >= 40);
}

TEST_CASE("an operation whose first piece was staged the other way is not counted", "[native][unit]") {
    StagingChoice choice;
    int streamed = 0;
    for (int i = 0; i < 320; ++i) {
        const bool before = choice.last(kBytes);
        const bool streams = choice.streams(kBytes);
        // Streaming costs its price where the first piece is staged, and little afterwards.
        choice.took(streams, (before ? 10 : 1) + (streams ? 1 : 2), kBytes);
        streamed += streams ? 1 : 0;
    }
    CHECK(streamed <= 20);
}

TEST_CASE("the cost of staging for one size does not count for another", "[native][unit]") {
    StagingChoice choice;
    int large = 0;
    int small = 0;
    for (int i = 0; i < 320; ++i) {
        large += streamed_of(choice, 1, 1, 2, 25 * kBytes);
        small += streamed_of(choice, 1, 20, 10, kBytes);
    }
    CHECK(large >= 300);
    CHECK(small <= 20);
}

TEST_CASE("a streamed copy is a copy, at every alignment and length", "[native][unit]") {
    std::vector<std::byte> from(1000);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
    int wrong = 0;
    for (std::size_t offset = 0; offset < 70; ++offset) {
        for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 500, 777}) {
            std::vector<std::byte> to(1000, std::byte{1});
            ddp::detail::stream_copy(to.data() + offset, from.data() + offset / 2, bytes);
            wrong += std::memcmp(to.data() + offset, from.data() + offset / 2, bytes) != 0 ? 1 : 0;
            wrong += to[offset + bytes] != std::byte{1} || (offset > 0 && to[offset - 1] != std::byte{1}) ? 1 : 0;
        }
    }
    CHECK(wrong == 0);
}
