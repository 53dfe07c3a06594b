// The meaning of the entries in the journal of shrinks, and which of two sides goes on. Pure.

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/group/shrink/journal.hpp"
#include "worker_lib/src/group/shrink/sides.hpp"

using namespace ddp;

TEST_CASE("the first entry about a round of a shrink counts", "[shrink][unit]") {
    using Journal = detail::ShrinkJournal;
    Journal journal;
    const auto read = [&](const std::string& entry) { journal.read(entry, {}); };
    read(Journal::closed(1, "3"));
    read(Journal::met(1, {3}));
    read(Journal::met(3, {3}));
    for (const char* const nonsense : {"", "met", "met x 3", "failed 1", "gone", "refused 2", "a \x01 b"})
        read(nonsense);
    CHECK(journal.next() == 11);
    CHECK(journal.open_round("3") == 2);
    CHECK(journal.formed().empty());
    CHECK_FALSE(journal.accused_since(0));
    read(Journal::met(2, {3}));
    read(Journal::refused(2, "3", "too late"));
    REQUIRE(journal.outcome("3", 2) != nullptr);
    CHECK(journal.outcome("3", 2)->outcome == Journal::Outcome::kMet);
    CHECK(journal.outcome("3", 3) == nullptr);
    read(Journal::refused(3, "3", "why: of two  sides"));
    CHECK(journal.outcome("3", 3)->text == "why: of two  sides");
    read(Journal::failed(2, "3", 1));
    CHECK(journal.has_failed("3", 2, 1));
    CHECK_FALSE(journal.has_failed("3", 2, 0));
    REQUIRE(journal.group_of(0) != nullptr);
    CHECK(journal.group_of(0)->round == 2);
    CHECK(journal.group_of(1) == nullptr);
    CHECK(journal.group_of(3) == nullptr);
    read(Journal::met(1, {}));
    CHECK(journal.group_of(0) == journal.group_of(3));
    read(Journal::met(1, {0, 1}));
    read(Journal::failed(1, "0,1", 2));
    CHECK(journal.last_group_of(2)->excluded == std::vector<int>{0, 1});
    CHECK(journal.group_of(2)->excluded.empty());
    CHECK(detail::gone_on_without(0, {2}, journal, {}).empty());
    CHECK(detail::gone_on_without(3, {0}, journal, {}).empty());
    read(Journal::death(4));
    CHECK(journal.is_dead(4));
    CHECK_FALSE(journal.is_dead(3));
}

TEST_CASE("a rank that was included again is not left behind, even if that group could not be formed",
          "[shrink][unit]") {
    using Journal = detail::ShrinkJournal;
    Journal journal;
    const auto gone_on = [&](const detail::ShrinkRequests& requests) {
        return detail::gone_on_without(2, {0, 1}, journal, requests);
    };
    journal.read(Journal::met(1, {2}), {});
    CHECK(gone_on({}) == std::vector<int>{0, 1});
    CHECK(gone_on({{0, {2, detail::ShrinkRequest::State::kActive, {}}}}) ==
          std::vector<int>{1});  // it has called again
    journal.read(Journal::met(1, {}), {});
    CHECK(gone_on({}).empty());
    journal.read(Journal::failed(1, "none", 0), {});
    CHECK(gone_on({}).empty());
}

TEST_CASE("a rank that denies to be lost prevents the ranks that exclude it from going on", "[shrink][unit]") {
    using detail::Presence;
    detail::ShrinkJournal journal;
    Presence found = Presence::kThere;
    const auto rival = [&](const std::vector<int>& excluded, const detail::ShrinkRequests& requests) {
        return detail::find_rival(excluded, 3, journal, requests, [&](int) { return found; });
    };
    using enum detail::ShrinkRequest::State;
    const detail::ShrinkRequests larger{{0, {1, kActive, {2}}}, {1, {1, kWithdrawn, {2}}}};
    REQUIRE(rival({0, 1}, larger));
    CHECK(rival({0, 1}, larger)->rank == 0);
    CHECK_FALSE(rival({0, 1}, {{0, {1, kDisagreed, {2}}}}));  // its call is over
    CHECK(detail::ShrinkRequest::parse("7 excluded 3 5").state == kDisagreed);
    CHECK(detail::ShrinkRequest::parse("7 excluded 3 5").text() == "7 excluded 3 5");
    CHECK_FALSE(rival({2}, {{2, {1, kActive, {0, 1}}}}));  // a smaller one, as long as it has not formed
    journal.read(detail::ShrinkJournal::met(1, {0, 1}), {});
    CHECK(rival({2}, {})->formed);
    found = Presence::kDoubtful;
    CHECK(rival({2}, {})->doubtful);
    found = Presence::kGone;
    CHECK_FALSE(rival({2}, {}));
}
