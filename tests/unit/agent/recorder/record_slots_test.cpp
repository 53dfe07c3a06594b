// The places on a board: which are taken again, which are shown, and what of a board can be trusted.
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
#include "tests/unit/agent/board_rig.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using coordinator::BoardView;
using ddp::detail::take_board;

TEST_CASE("the board keeps the newest operations, and of few that are asked for also those in hand", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0});
    const auto other = rig.add("other", {0});
    rig.queue(other, 1).started();
    const auto forgotten = rig.queue(world, 1);
    for (std::uint64_t seq = 2; seq <= 100; ++seq) rig.queue(world, seq).ended(true);
    const BoardView few = rig.agent.view(3);
    REQUIRE(few.operations.size() == 4);
    CHECK(few.operations[0].group == 1);
    CHECK(few.operations[1].seq == 98);
    CHECK(few.operations_in_all == 101);

    for (std::uint64_t seq = 101; seq <= 3 * board::kOperations; ++seq) (void)rig.queue(world, seq);
    forgotten.ended(true);  // its slot is another's
    const BoardView all = rig.agent.view(board::kOperations);
    CHECK(all.operations.size() == board::kOperations);
    CHECK(all.operations.back().seq == 3 * board::kOperations);
    CHECK(all.operations.front().seq == 2 * board::kOperations + 1);
    CHECK(std::ranges::none_of(all.operations, [](const auto& operation) { return operation.ended_ago.has_value(); }));
}

TEST_CASE("why a group was given up is cut between two characters, and shows it", "[agent]") {
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

TEST_CASE("names, tags and phases that are too long are cut between two characters, and show it", "[agent]") {
    Rig rig;
    std::string text = "x";
    for (int i = 0; i < 100; ++i) text += "é";
    const auto world = rig.add(text, {0, 1});
    (void)rig.queue(world, 1, text);
    ddp::detail::TransferBatch batch;
    batch.transfers = {{true, {nullptr, 10, ddp::DType::f64}, 1, 0}};
    batch.tag = text;
    (void)rig.queue(batch, world);
    (void)rig.writer->queue({"split", text, {}, 1}, world, Clock::now());
    rig.writer->set_phase(text);
    const BoardView view = rig.agent.view(100);
    std::vector<std::string> shown{view.phase};
    for (const auto& operation : view.operations) shown.push_back(operation.tag);
    REQUIRE(shown.size() == 4);
    for (const std::string& one : shown) CHECK_THAT(one, Catch::StartsWith("xéé") && Catch::EndsWith("éé…"));
    CHECK(shown[0].size() == 64);
    CHECK(shown[1].size() == 40);
}

TEST_CASE("groups whose long names differ anywhere have different names on the board, with both ends", "[agent]") {
    Rig rig;
    std::string middle = "ä";  // of two bytes, so that somewhere a cut would be in their midst
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

TEST_CASE("places of groups that are gone are taken again, and irregular members are left out", "[agent]") {
    Rig rig;
    (void)rig.add("world", {0});
    for (int i = 0; i < 500; ++i) rig.writer->remove(rig.add("short", {0}));
    std::vector<int> squares(100);
    for (int i = 0; i < 100; ++i) squares[static_cast<std::size_t>(i)] = i * i;
    (void)rig.add("irregular", squares);
    const BoardView view = rig.agent.view(4);
    CHECK(view.groups.front().name == "world");
    CHECK(view.groups.back().name == "irregular");
    CHECK(view.groups.back().members.empty());
    CHECK(view.groups.back().size == 100);
    for (std::size_t i = 2; i < board::kGroups; ++i) CHECK(rig.add("one more", {0}).slot != nullptr);
    const auto beyond = rig.add("one too many", {0});
    CHECK(beyond.slot == nullptr);
    rig.queue(beyond, 1).ended(true);
    CHECK(rig.agent.view(4).hidden_groups == 1);
    rig.writer->remove(beyond);
    CHECK(rig.agent.view(4).hidden_groups == 0);
}

TEST_CASE("whatever a worker has scribbled on its board, the agent survives it", "[agent]") {
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
    rig.memory->pid = 1;  // else nothing more is looked at
    const BoardView view = rig.agent.view(board::kOperations);
    CHECK(view.operations.size() <= board::kOperations);
    for (const auto& operation : view.operations) {
        CHECK(operation.group < static_cast<int>(view.groups.size()));
        CHECK(operation.queued_ago.count() >= 0);
    }
    CHECK(describe_activity(view).size() < 1'000);
}

TEST_CASE("a descriptor that is no board, or another process's, is left alone", "[agent]") {
    std::string problem;
    CHECK(take_board(-1, problem) == nullptr);
    CHECK(take_board(1'000'000, problem) == nullptr);
    CHECK(problem == "there is no such descriptor");
    const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    CHECK(take_board(file.get(), problem) == nullptr);
    CHECK(problem == "it is no board of this version");
    const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(memory.get(), sizeof(board::Board)) == 0);
    CHECK(take_board(memory.get(), problem) == nullptr);  // not sealed: it could shrink under us
    REQUIRE(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(take_board(memory.get(), problem) == nullptr);  // of zeros
    CHECK(problem == "it is no board of this version");

    const Rig ours;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(take_board(ours.agent.descriptor(), problem) == nullptr ? 0 : 1);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("the second program of a worker takes the board that the first has left when it ended", "[agent]") {
    WorkerBoard agent = WorkerBoard::make().value();
    const pid_t child = ::fork();
    if (child == 0) {
        std::string problem;
        board::Board* const memory = take_board(agent.descriptor(), problem);
        if (memory == nullptr) ::_exit(1);
        ddp::detail::Board first(*memory);
        first.set_phase("first");
        ddp::detail::GroupSpec spec;
        spec.members = {0};
        ddp::detail::Operation operation;
        operation.seq = 7;
        first.queue(operation, first.claim(), first.add(spec), Clock::now()).started();
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    CHECK(agent.view(4).phase == "first");
    CHECK(agent.view(4).operations.size() == 1);
    std::string problem;
    board::Board* const memory = take_board(agent.descriptor(), problem);
    REQUIRE(memory != nullptr);
    const BoardView view = agent.view(4);
    CHECK(view.written);
    CHECK(view.phase == "");
    CHECK(view.groups.empty());
    CHECK(view.operations.empty());
    CHECK(view.operations_in_all == 0);

    memory->pid = -1'000'000'000;  // as if another one had ended while it cleared the board; there is no such process
    CHECK_FALSE(agent.view(4).written);
    board::Board* const again = take_board(agent.descriptor(), problem);
    REQUIRE(again != nullptr);
    CHECK(agent.view(4).written);
    ::munmap(again, sizeof *again);
    ::munmap(memory, sizeof *memory);
}

TEST_CASE("messages that nobody asks for hide nothing that is in hand, and are not told to be", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    ddp::detail::TransferBatch batch;
    batch.transfers = {{false, {nullptr, 1, ddp::DType::u8}, 1, 0}};
    const auto first = rig.queue(batch, world).front();
    for (int i = 0; i < 50; ++i) (void)rig.writer->note_arrival(batch, first);
    for (int i = 0; i < 20; ++i) {
        batch.tickets.clear();
        (void)rig.queue(batch, world);
    }
    for (std::uint64_t seq = 1; seq <= 16; ++seq) rig.queue(world, seq).ended(true);
    const BoardView view = rig.agent.view(16);
    CHECK(std::ranges::count(view.operations, "recv", &coordinator::BoardOperation::op) == 21);
    CHECK(std::ranges::count(view.operations, "arrived", &coordinator::BoardOperation::op) == 11);
    CHECK(view.more_in_hand == 0);
}

TEST_CASE("a call that is refused was never made: no number of the group's is taken, and nothing stands there",
          "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    rig.queue(world, 1).done_at_once(Clock::now());
    const auto refused = rig.queue(world, 2);
    refused.refused();
    ddp::detail::TransferBatch batch;
    batch.transfers = {{false, {nullptr, 1, ddp::DType::u8}, 1, 0}};
    rig.queue(batch, world).front().refused();
    BoardView view = rig.agent.view(16);
    CHECK(view.groups[0].queued == 1);
    REQUIRE(view.operations.size() == 1);
    CHECK(view.operations[0].seq == 1);
    refused.waited(true);  // who still holds it writes no more
    rig.queue(world, 2, "again").started();
    view = rig.agent.view(16);
    CHECK(view.groups[0].queued == 2);
    REQUIRE(view.operations.size() == 2);
    CHECK(view.operations[1].tag == "again");
    CHECK_FALSE(view.operations[1].waited_ago);
}

TEST_CASE("of thousands in hand few are shown, collectives first, and control characters stay on the board",
          "[agent]") {
    Rig rig;
    const auto world = rig.add("world\nexit code: 0", {0, 1});
    for (int i = 0; i < 100; ++i) {
        ddp::detail::TransferBatch batch;
        batch.seq = 1;
        batch.transfers = {{false, {nullptr, 1, ddp::DType::u8}, 1, i}};
        (void)rig.queue(batch, world);
    }
    rig.queue(world, 1, "a\tb").started();
    for (std::uint64_t seq = 2; seq <= 20; ++seq) rig.queue(world, seq).ended(true);
    const BoardView view = rig.agent.view(16);
    CHECK(view.operations.size() == 48);
    CHECK(view.more_in_hand == 69);
    CHECK(std::ranges::count(view.operations, "a?b", &coordinator::BoardOperation::tag) == 1);
    CHECK(view.groups[0].name == "world?exit code: 0");
    CHECK(rig.agent.view(0).operations.size() == 101);
}
