// The slots of a flight record: which are reused, which are shown, and which contents can be trusted.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/agent/recorder/record_rig.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using ddp::detail::take_recorder_memory;
using protocol::FlightRecord;

TEST_CASE("the flight record keeps the newest operations, and a short view also has those in progress", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0});
    const auto other = rig.add("other", {0});
    rig.queue(other, 1).started();
    const auto forgotten = rig.queue(world, 1);
    for (std::uint64_t seq = 2; seq <= 100; ++seq) rig.queue(world, seq).ended(true);
    const FlightRecord few = rig.agent.view(3);
    REQUIRE(few.operations.size() == 4);
    CHECK(few.operations[0].group == 1);
    CHECK(few.operations[1].seq == 98);
    CHECK(few.operations_in_all == 101);

    for (std::uint64_t seq = 101; seq <= 3 * flight_record::kOperations; ++seq) (void)rig.queue(world, seq);
    forgotten.ended(true);  // another operation has its slot
    const FlightRecord all = rig.agent.view(flight_record::kOperations);
    CHECK(all.operations.size() == flight_record::kOperations);
    CHECK(all.operations.back().seq == 3 * flight_record::kOperations);
    CHECK(all.operations.front().seq == 2 * flight_record::kOperations + 1);
    CHECK(std::ranges::none_of(all.operations, [](const auto& operation) { return operation.ended_ago.has_value(); }));
}

TEST_CASE("the reason of an abort is cut between two characters and marked", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0});
    rig.writer->abort(
        "x" +
            [] {
                std::string text;
                for (int i = 0; i < 100; ++i) text += "é";  // two bytes each
                return text;
            }(),
        world);
    const std::string reason = rig.agent.view(1).groups.front().abort_reason;
    CHECK(reason.size() == 120);
    CHECK_THAT(reason, Catch::StartsWith("xéé") && Catch::EndsWith("éé…"));
}

TEST_CASE("names, tags and phases that are too long are cut between two characters and marked", "[agent]") {
    Rig rig;
    std::string text = "x";
    for (int i = 0; i < 100; ++i) text += "é";
    const auto world = rig.add(text, {0, 1});
    (void)rig.queue(world, 1, text);
    ddp::detail::TransferList batch;
    batch.transfers = {{true, {nullptr, 10, ddp::DType::F64}, 1, 0}};
    batch.label = text;
    (void)rig.queue(batch, world);
    (void)record(*rig.writer, ddp::detail::StoreStep{"split", text, {}, 1}, world, Clock::now());
    rig.writer->set_phase(text);
    const FlightRecord view = rig.agent.view(100);
    std::vector<std::string> shown{view.phase};
    for (const auto& operation : view.operations) shown.push_back(operation.tag);
    REQUIRE(shown.size() == 4);
    for (const std::string& one : shown) CHECK_THAT(one, Catch::StartsWith("xéé") && Catch::EndsWith("éé…"));
    CHECK(shown[0].size() == 64);
    CHECK(shown[1].size() == 40);
}

TEST_CASE("groups with different long names have different names in the flight record, with both ends", "[agent]") {
    Rig rig;
    std::string middle = "ä";  // two bytes, so that some cut would fall between them
    for (int i = 0; i < 100; ++i) middle += "é";
    std::vector<std::string> names;
    for (const std::string& between :
         {middle, middle + "e", "e" + middle, middle.substr(0, 100) + "e" + middle.substr(100)})
        names.push_back("parts " + between + " (color 1) of world");
    for (const std::string& name : names) (void)rig.add(name, {0, 1});
    (void)rig.add(names.front() + " (store)", {0, 1});
    std::set<std::string> shown;
    for (const auto& group : rig.agent.view(100).groups) {
        shown.insert(group.name);
        CHECK_THAT(group.name,
                   Catch::StartsWith("parts ") && Catch::Contains("é…[") &&
                       (Catch::EndsWith("é (color 1) of world") || Catch::EndsWith("e (color 1) of world") ||
                        Catch::EndsWith("é (color 1) of world (store)")));
        CHECK(group.name.size() > 120);
        CHECK(group.name.size() <= 128);
    }
    CHECK(shown.size() == 5);
}

TEST_CASE("slots of groups that have ended are reused, and irregular members are left out", "[agent]") {
    Rig rig;
    (void)rig.add("world", {0});
    for (int i = 0; i < 500; ++i) rig.writer->remove(rig.add("short", {0}));
    std::vector<int> squares(100);
    for (int i = 0; i < 100; ++i) squares[static_cast<std::size_t>(i)] = i * i;
    (void)rig.add("irregular", squares);
    const FlightRecord view = rig.agent.view(4);
    CHECK(view.groups.front().name == "world");
    CHECK(view.groups.back().name == "irregular");
    CHECK(view.groups.back().members.empty());
    CHECK(view.groups.back().size == 100);
    for (std::size_t i = 2; i < flight_record::kGroups; ++i) CHECK(rig.add("one more", {0}).slot != nullptr);
    const auto beyond = rig.add("one too many", {0});
    CHECK(beyond.slot == nullptr);
    rig.queue(beyond, 1).ended(true);
    CHECK(rig.agent.view(4).hidden_groups == 1);
    rig.writer->remove(beyond);
    CHECK(rig.agent.view(4).hidden_groups == 0);
}

TEST_CASE("random bytes in a flight record do not harm the agent", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1, 2});
    for (std::uint64_t seq = 1; seq < 200; ++seq) rig.queue(world, seq, "bucket").started();
    const auto seed = GENERATE(take(20, random(0u, 0xffffffffu)));
    CAPTURE(seed);
    std::mt19937 random(seed);
    auto* const bytes = reinterpret_cast<unsigned char*>(rig.memory);
    if (seed % 2 == 0) {
        for (std::size_t i = 0; i < sizeof *rig.memory; ++i) bytes[i] = static_cast<unsigned char>(random());
    } else {
        for (int i = 0; i < 20'000; ++i) bytes[random() % sizeof *rig.memory] = static_cast<unsigned char>(random());
    }
    rig.memory->pid = 1;  // else the rest is not read
    const FlightRecord view = rig.agent.view(flight_record::kOperations);
    CHECK(view.operations.size() <= flight_record::kOperations);
    for (const auto& operation : view.operations) {
        CHECK(operation.group < static_cast<int>(view.groups.size()));
        CHECK(operation.queued_ago.count() >= 0);
    }
    CHECK(describe_activity(view).size() < 1'000);
}

TEST_CASE("a descriptor that is not a flight record, or another process's, is not used", "[agent]") {
    std::string problem;
    CHECK(take_recorder_memory(-1, problem) == nullptr);
    CHECK(take_recorder_memory(1'000'000, problem) == nullptr);
    CHECK(problem == "there is no such descriptor");
    const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    CHECK(take_recorder_memory(file.get(), problem) == nullptr);
    CHECK(problem == "it is not a flight record of this version");
    const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(memory.get(), sizeof(flight_record::Memory)) == 0);
    CHECK(take_recorder_memory(memory.get(), problem) == nullptr);  // not sealed: it could shrink while it is used
    REQUIRE(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(take_recorder_memory(memory.get(), problem) == nullptr);  // of zeros
    CHECK(problem == "it is not a flight record of this version");

    const Rig ours;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(take_recorder_memory(ours.agent.descriptor(), problem) == nullptr ? 0 : 1);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("the second program of a worker takes over the flight record after the first has ended", "[agent]") {
    WorkerFlightRecord agent = WorkerFlightRecord::make().value();
    const pid_t child = ::fork();
    if (child == 0) {
        std::string problem;
        flight_record::Memory* const memory = take_recorder_memory(agent.descriptor(), problem);
        if (memory == nullptr) ::_exit(1);
        ddp::detail::FlightRecorder first(*memory);
        first.set_phase("first");
        ddp::detail::GroupSpec spec;
        spec.members = {0};
        ddp::detail::Operation operation;
        operation.seq = 7;
        record(operation, first.claim(), add_group(first, spec), Clock::now()).started();
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    CHECK(agent.view(4).phase == "first");
    CHECK(agent.view(4).operations.size() == 1);
    std::string problem;
    flight_record::Memory* const memory = take_recorder_memory(agent.descriptor(), problem);
    REQUIRE(memory != nullptr);
    const FlightRecord view = agent.view(4);
    CHECK(view.written);
    CHECK(view.phase == "");
    CHECK(view.groups.empty());
    CHECK(view.operations.empty());
    CHECK(view.operations_in_all == 0);

    memory->pid =
        -1'000'000'000;  // as if another one had ended while it cleared the flight record; there is no such process
    CHECK_FALSE(agent.view(4).written);
    flight_record::Memory* const again = take_recorder_memory(agent.descriptor(), problem);
    REQUIRE(again != nullptr);
    CHECK(agent.view(4).written);
    ::munmap(again, sizeof *again);
    ::munmap(memory, sizeof *memory);
}

TEST_CASE("unexpected messages hide no operation in progress, and do not count as in progress", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    ddp::detail::TransferList batch;
    batch.transfers = {{false, {nullptr, 1, ddp::DType::U8}, 1, 0}};
    const auto first = rig.queue(batch, world).front();
    for (int i = 0; i < 50; ++i) (void)ddp::detail::note_arrival(*rig.writer, batch, first);
    for (int i = 0; i < 20; ++i) {
        batch.record_entries.clear();
        (void)rig.queue(batch, world);
    }
    for (std::uint64_t seq = 1; seq <= 16; ++seq) rig.queue(world, seq).ended(true);
    const FlightRecord view = rig.agent.view(16);
    CHECK(std::ranges::count(view.operations, "recv", &protocol::RecordedOperation::op) == 21);
    CHECK(std::ranges::count(view.operations, "arrived", &protocol::RecordedOperation::op) == 11);
    CHECK(view.more_unfinished == 0);
}

TEST_CASE("a call that is rejected uses no number of the group and leaves no entry", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    rig.queue(world, 1).done_at_once(Clock::now());
    const auto refused = rig.queue(world, 2);
    refused.refused();
    ddp::detail::TransferList batch;
    batch.transfers = {{false, {nullptr, 1, ddp::DType::U8}, 1, 0}};
    rig.queue(batch, world).front().refused();
    FlightRecord view = rig.agent.view(16);
    CHECK(view.groups[0].queued == 1);
    REQUIRE(view.operations.size() == 1);
    CHECK(view.operations[0].seq == 1);
    refused.waited(true);  // its holder writes no more
    rig.queue(world, 2, "again").started();
    view = rig.agent.view(16);
    CHECK(view.groups[0].queued == 2);
    REQUIRE(view.operations.size() == 2);
    CHECK(view.operations[1].tag == "again");
    CHECK_FALSE(view.operations[1].waited_ago);
}

TEST_CASE("of thousands in progress few are shown, collectives first, and control characters are not", "[agent]") {
    Rig rig;
    const auto world = rig.add("world\nexit code: 0", {0, 1});
    for (int i = 0; i < 100; ++i) {
        ddp::detail::TransferList batch;
        batch.seq = 1;
        batch.transfers = {{false, {nullptr, 1, ddp::DType::U8}, 1, i}};
        (void)rig.queue(batch, world);
    }
    rig.queue(world, 1, "a\tb").started();
    for (std::uint64_t seq = 2; seq <= 20; ++seq) rig.queue(world, seq).ended(true);
    const FlightRecord view = rig.agent.view(16);
    CHECK(view.operations.size() == 48);
    CHECK(view.more_unfinished == 69);
    CHECK(std::ranges::count(view.operations, "a?b", &protocol::RecordedOperation::tag) == 1);
    CHECK(view.groups[0].name == "world?exit code: 0");
    CHECK(rig.agent.view(0).operations.size() == 101);
}
