// FailureNote: that a failure arrives as it was sent, cut where it is long, and that no byte of it is trusted.

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/protocol/failure_note.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

const Failure kFailure{.kind = FailureKind::kRelayed,
                       .code = ErrorCode::PeerLost,
                       .reporter = "rank 3 (host b, pid 9)",
                       .operation = "#6 barrier 'a: b'",
                       .cause = "rank 1 cannot finish: rank 2 reported: group 'x': …",
                       .culprits = {0, 7},
                       .names_group = true};

constexpr int kGroupSize = 8;

Failure sent(const Failure& failure) { return read_note(make_note(failure), kGroupSize); }

}  // namespace

TEST_CASE("a failure arrives as it was sent", "[native][unit]") {
    CHECK(sent(kFailure) == kFailure);
    CHECK(sent({}) == Failure{});
    Failure failure{.code = static_cast<ErrorCode>(GENERATE(range(0, static_cast<int>(ErrorCode::System) + 1)))};
    failure.kind = GENERATE(FailureKind::kOwn, FailureKind::kPeerLost);
    CHECK(sent(failure) == failure);
}

TEST_CASE("long texts of a failure are cut between two characters, and many culprits to some", "[native][unit]") {
    const int before = GENERATE(0, 1, 2);
    Failure failure = kFailure;
    const auto repeat = [&](std::string_view character, int count) {
        std::string text(static_cast<std::size_t>(before), 'x');
        for (int i = 0; i < count; ++i) text += character;
        return text;
    };
    failure.reporter = repeat("ü", 200);
    failure.operation = repeat("€", 200);
    failure.cause = repeat("€", 500);
    failure.culprits.assign(100, 5);
    const Failure read = sent(failure);
    const auto is_cut = [](const std::string& read_text, const std::string& whole, std::size_t room) {
        CHECK(read_text.size() <= room);
        CHECK(read_text.size() > room - 4);
        REQUIRE_THAT(read_text, Catch::EndsWith("…"));
        const std::string kept = read_text.substr(0, read_text.size() - std::strlen("…"));
        CHECK(whole.starts_with(kept));
        CHECK((static_cast<unsigned char>(whole[kept.size()]) & 0xC0U) != 0x80);
    };
    is_cut(read.reporter, failure.reporter, FailureNote{}.reporter.size());
    is_cut(read.operation, failure.operation, FailureNote{}.operation.size());
    is_cut(read.cause, failure.cause, FailureNote{}.cause.size());
    CHECK(read.culprits == std::vector<int>(FailureNote{}.culprits.size(), 5));
    CHECK(read.names_group);
}

TEST_CASE("a note with values that no rank writes is read as a failure nevertheless", "[native][unit]") {
    FailureNote note = make_note(kFailure);
    note.kind = GENERATE(-1, 3, 1 << 30);
    note.code = GENERATE(-1, 9, 1 << 30);
    note.culprit_count = 6;
    note.culprits = {-1, 2, -1 << 30, 5, kGroupSize, 1 << 30};
    const Failure read = read_note(note, kGroupSize);
    CHECK(read.kind == FailureKind::kOwn);
    CHECK(read.code == ErrorCode::System);
    CHECK(read.reporter.empty());
    CHECK(read.culprits == std::vector<int>{2, 5});
    note.culprit_count = -7;
    CHECK(read_note(note, kGroupSize).culprits.empty());
    note.culprit_count = 1 << 30;
    CHECK(read_note(note, kGroupSize).culprits.size() <= note.culprits.size());
}

TEST_CASE("a relayed failure without a reporter is taken for one that its sender found", "[native][unit]") {
    Failure nameless = kFailure;
    nameless.reporter.clear();
    CHECK(sent(nameless).kind == FailureKind::kOwn);
    CHECK(reported_by("rank 2", sent(nameless)).reporter == "rank 2");
}

TEST_CASE("any bytes are read as a failure, whose error is one line", "[native][unit]") {
    std::mt19937 random(GENERATE(range(0, 50)));
    FailureNote note;
    std::vector<unsigned char> bytes(sizeof note);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    std::memcpy(&note, bytes.data(), sizeof note);
    if (GENERATE(true, false)) note.cause.fill('\n');  // without a zero byte at its end
    const Failure read = read_note(note, kGroupSize);
    CHECK(read.cause.size() <= note.cause.size());
    CHECK(read_note(make_note(read), kGroupSize) == read);
    CHECK(std::string(to_error(read, "world", "rank 0").what()).find('\n') == std::string::npos);
}
