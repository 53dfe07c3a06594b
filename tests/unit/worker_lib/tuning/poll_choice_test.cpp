#include "worker_lib/src/tuning/poll_choice.hpp"

#include "tests/catch.hpp"

using ddp::detail::PollChoice;

namespace {

int polls_of_next(PollChoice& choice, int receives) {
    int polls = 0;
    for (int i = 0; i < receives; ++i) {
        polls += choice.polls() ? 1 : 0;
        choice.missed();
    }
    return polls;
}

}  // namespace

TEST_CASE("a receive polls until four in a row have found no message", "[native][unit]") {
    PollChoice choice;
    CHECK(polls_of_next(choice, 3) == 3);
    choice.found();
    CHECK(polls_of_next(choice, 4) == 4);
    CHECK_FALSE(choice.polls());
}

TEST_CASE("where receives find no message, one of sixteen polls", "[native][unit]") {
    PollChoice choice;
    (void)polls_of_next(choice, 4);
    CHECK(polls_of_next(choice, 1600) == 100);
}

TEST_CASE("one message that is there at once makes the next receives poll again", "[native][unit]") {
    PollChoice choice;
    (void)polls_of_next(choice, 100);
    CHECK_FALSE(choice.polls());
    choice.found();
    CHECK(choice.polls());
}
