// The texts of errors: what differs, which rank reported it, and which rank of the job a group's rank is.

#include <algorithm>
#include <chrono>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/fnv.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/native/protocol/signature.hpp"

using namespace ddp;
using namespace ddp::testing;
using Catch::Contains;
using std::chrono::milliseconds;

namespace {

std::size_t count_of(const std::string& words, const std::string& text) {
    std::size_t count = 0;
    for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
    return count;
}

}  // namespace

TEST_CASE("a different count, type, reduction, root or label is named, with both sides", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const int what = GENERATE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    Gate gate(2);
    const auto errors =
        errors_of({.ranks_per_node = shape}, behind(gate, [what](Context& context) {
                      const bool odd = context.rank() == 1;
                      std::vector<float> floats(20);
                      std::vector<std::int32_t> integers(20);
                      const auto some = [&](std::size_t count) { return Buffer(std::span(floats).first(count)); };
                      ProcessGroup& world = context.world();
                      if (what == 0) world.all_reduce(some(odd ? 11 : 10), ReduceOp::Sum).wait();
                      if (what == 1) world.all_reduce(odd ? Buffer(integers) : some(20), ReduceOp::Sum).wait();
                      if (what == 2) world.all_reduce(some(10), odd ? ReduceOp::Max : ReduceOp::Sum).wait();
                      if (what == 3) world.broadcast(some(10), odd ? 1 : 0).wait();
                      if (what == 4) odd ? world.barrier().wait() : world.all_reduce(some(0), ReduceOp::Sum).wait();
                      if (what == 5)
                          world.broadcast(odd ? Buffer(std::span(integers).first(7)) : some(10), odd ? 1 : 0).wait();
                      if (what == 6) {
                          const std::vector<std::size_t> counts =
                              odd ? std::vector<std::size_t>{2, 4} : std::vector<std::size_t>{3, 3};
                          world.all_gather_v(some(odd ? 4 : 3), Buffer(std::span(floats).last(6)), counts).wait();
                      }
                      if (what == 7) {
                          const OpOptions options{.label = odd ? "bucket 4" : "bucket 3"};
                          world.all_reduce(some(20), ReduceOp::Sum, options).wait();
                      }
                      if (what == 8) world.barrier({.label = odd ? "" : "start"}).wait();
                      const OpOptions colliding{.label = odd ? "unit 7 layers.7.weight" : "unit 1 layers.1.weight"};
                      if (what == 9) world.barrier(colliding).wait();
                      if (what == 10) world.all_reduce(some(20), ReduceOp::Sum, colliding).wait();
                  }));
    const std::vector<std::vector<std::string>> words{
        {"the ranks called all_reduce with different counts: ", "): #1 all_reduce sum f32[10]",
         "#1 all_reduce sum f32[11]"},
        {"called all_reduce with different element types: ", "): #1 all_reduce sum f32[20]",
         "): #1 all_reduce sum i32[20]"},
        {"called all_reduce with different reductions: ", "): #1 all_reduce sum f32[10]",
         "): #1 all_reduce max f32[10]"},
        {"called broadcast with different roots: ", "): #1 broadcast f32[10] root 0", "): #1 broadcast f32[10] root 1"},
        {"the ranks called different operations: ", "): #1 all_reduce sum f32[0]", "): #1 barrier"},
        {"called broadcast with different counts, element types and roots: ", "f32[10] root 0", "i32[7] root 1"},
        {"called all_gather_v with different counts per rank: ", "): #1 all_gather_v f32[6]",
         "): #1 all_gather_v f32[6]"},
        {"called all_reduce with different labels: ", "): #1 all_reduce sum f32[20] 'bucket 3'",
         "): #1 all_reduce sum f32[20] 'bucket 4'"},
        {"called barrier with different labels: ", "): #1 barrier 'start'", "): #1 barrier"},
        {"called barrier with different labels: ", "'unit 1 layers.1.weight'", "'unit 7 layers.7.weight'"},
        {"called all_reduce with different labels: ", "'unit 1 layers.1.weight'", "'unit 7 layers.7.weight'"}};
    for (const auto& error : errors) {
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->code() == ErrorCode::Mismatch);
        CHECK_THAT(error->what(), Contains(named(0)) && Contains(named(1)));
        for (const std::string& word : words[static_cast<std::size_t>(what)]) CHECK_THAT(error->what(), Contains(word));
    }
}

TEST_CASE("labels with the same hash of 8 bits differ by more bits, unless the operation has a root",
          "[native][unit]") {
    const auto of = [](detail::OpKind kind, const char* label) {
        detail::Operation operation;
        operation.kind = kind;
        operation.label = label;
        return identity_of(operation);
    };
    const auto kind = GENERATE(detail::OpKind::kBarrier, detail::OpKind::kAllGather, detail::OpKind::kAllReduce);
    const detail::Identity one = of(kind, "unit 1 layers.1.weight"), other = of(kind, "unit 7 layers.7.weight");
    CHECK(one.label_hash == other.label_hash);
    CHECK_FALSE(one == other);
    CHECK(of(kind, "").root == 0);
    CHECK(of(detail::OpKind::kBroadcast, "unit 1").root == 0);
}

TEST_CASE("operations of different steps are named as such, because their counts are the same", "[native][unit]") {
    const auto [kind, name] = GENERATE(table<detail::OpKind, std::string>(
        {{detail::OpKind::kAllReduce, "all_reduce"}, {detail::OpKind::kBarrier, "barrier"}}));
    detail::Operation operation;
    operation.kind = kind;
    operation.seq = 7;
    operation.counts_hash = 3;
    const detail::Operation own = operation;
    operation.counts_hash = 4;
    CHECK_THAT(detail::mismatch("rank 0", own, "rank 1", signature_of(operation)).cause,
               Contains("the ranks called " + name + " in different steps: rank 0: ") &&
                   Contains(" of step 3, rank 1: ") && Contains(" of step 4"));
}

TEST_CASE("an error says where two lists of counts differ, as far as their sums and hashes show", "[native][unit]") {
    const auto with = [](std::vector<std::size_t> counts, std::uint64_t step) {
        detail::Operation operation;
        operation.kind = detail::OpKind::kAllGatherV;
        operation.seq = 7;
        operation.counts = std::move(counts);
        ddprun::Fnv64 hash;
        hash.add(std::as_bytes(std::span(operation.counts)));
        operation.counts_hash = hash.value() + step;
        return operation;
    };
    const auto [theirs, words] = GENERATE(table<std::vector<std::size_t>, std::string>({
        {{1, 2, 7}, "f32[10]; the count of rank 2 is 3 for the first and 7 for the second"},
        {{1, 0, 3}, "f32[4]; the count of rank 1 is 2 for the first and 0 for the second"},
        {{5, 5, 5}, "f32[15]; the first passes the counts 1, 2, 3, the second 5 for every rank"},
        {{2, 1, 3}, "f32[6]; the first passes the counts 1, 2, 3, the second a list that is not known here: print it"},
    }));
    const std::uint64_t step = GENERATE(0, 9);
    const Error error =
        detail::to_error(detail::mismatch("rank 0", with({1, 2, 3}, step), "rank 1", signature_of(with(theirs, step))),
                         "world", "rank 0");
    CHECK_THAT(error.what(), Contains(": rank 0: #7 all_gather_v f32[6], rank 1: #7 all_gather_v ") && Contains(words));
    const detail::Failure steps = detail::mismatch("a", with({1, 2, 3}, 0), "b", signature_of(with({1, 2, 3}, 4)));
    CHECK_THAT(steps.cause,
               Contains("the ranks called all_gather_v in different steps: a: #7 all_gather_v f32[6], b: ") &&
                   Contains("; the first in no step, the second in step 4"));
    std::vector<std::size_t> many(2000, 1);
    many.back() = 2;
    CHECK_THAT(
        detail::mismatch("a", with(std::vector<std::size_t>(2000, 1), step), "b", signature_of(with(many, step))).cause,
        Contains("the counts 1, 1, 1, 1, 1, 1, 1, 1, …, the second a list"));
}

TEST_CASE("the reporter of a failure is named once, however many ranks have relayed it", "[native][unit]") {
    const auto what = GENERATE(values<std::string>({"mismatch", "deadline", "abort", "leave"}));
    Gate gate(6);
    const auto errors =
        errors_of({.ranks_per_node = {2, 2, 2}}, behind(gate, [&what](Context& context) {
                      const auto group = context.world().split(0, context.rank(), "all");
                      std::vector<float> values(100'000);
                      const bool odd = context.rank() == 5;
                      if (odd && what == "mismatch") return group->barrier().wait();
                      if (odd && what == "abort") group->abort("loss is NaN");
                      if (odd && what == "deadline") std::this_thread::sleep_for(milliseconds(1'500));
                      if (odd) return;  // and leaves the group
                      const OpOptions options{.timeout = milliseconds(what == "deadline" ? 300 : 20'000)};
                      group->all_reduce(values, ReduceOp::Sum, options).wait();
                  }));
    CAPTURE(what);
    for (const std::size_t rank : {0, 1, 2, 3, 4}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(count_of("reported: ", errors[rank]->what()) <= 1);
        const bool lost = errors[rank]->code() == ErrorCode::PeerLost;
        CHECK(errors[rank]->peer_failed() == (lost || count_of("reported: ", errors[rank]->what()) == 1));
        CHECK(count_of("cannot finish", errors[rank]->what()) <= 1);
        CHECK(count_of("group 'all of world': ", errors[rank]->what()) <= 1);
        if (what == "mismatch")
            CHECK_THAT(errors[rank]->what(), Contains("different operations") && Contains("#1 barrier"));
    }
}

TEST_CASE("an error is one line without control characters, whatever the program has called things", "[native][unit]") {
    const auto what = GENERATE(values<std::string>({"mismatch", "argument", "abort", "send", "split", "barrier"}));
    Gate gate(2);
    const auto errors =
        errors_of({.ranks_per_node = {1, 1}}, behind(gate, [&what](Context& context) {
                      const bool odd = context.rank() == 1;
                      const auto group = context.world().split(0, context.rank(), "half\n\x1b[2Jline");
                      std::vector<float> values(10);
                      Buffer all = Buffer(values);
                      const OpOptions tagged{.timeout = milliseconds(20'000), .label = "loss\n\x1b[31mred"};
                      if (what == "mismatch")
                          group->all_reduce(odd ? Buffer(values[0]) : all, ReduceOp::Sum, tagged).wait();
                      if (what == "argument") group->broadcast(all, 7, tagged).wait();
                      if (what == "send") group->send(all, 7, 0, tagged).wait();
                      if (what == "abort" && odd) group->abort("loss\n\x1b[31mred is NaN");
                      if (what == "abort") group->barrier(tagged).wait();
                      if (what == "split") static_cast<void>(group->split(0, 0, odd ? "even" : "odd\r\n"));
                      if (what == "barrier" && !odd) group->monitored_barrier(milliseconds(200), "end\n\x1b[31mred");
                      if (what == "barrier" && odd) throw Error(ErrorCode::Io, "disk\nfull");
                  }));
    for (const auto& error : errors) {
        REQUIRE(error);
        INFO(error->what());
        CHECK(std::ranges::none_of(std::string(error->what()), [](unsigned char c) { return c < 0x20 || c == 0x7f; }));
        CHECK_THAT(error->what(), Contains("\\x0a"));
    }
}

TEST_CASE("a name that no flight record, store or reader could take is refused, and the group goes on",
          "[native][unit]") {
    const auto names = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::string text = "accepted";
        try {
            static_cast<void>(context.world().split(0, 0, std::string(5000, 'x')));
        } catch (const Error& error) {
            text = error.code() == ErrorCode::InvalidArgument ? error.what() : "another code";
        }
        const auto longest = context.world().split(0, context.rank(), std::string(200, 'y'));
        longest->barrier().wait();
        return text;
    });
    for (const std::string& text : names) {
        CHECK_THAT(text, Contains("'world'") && Contains("has 5000 bytes, and 200 are allowed. Pass a shorter"));
        CHECK(text.size() < 300);
    }
}

TEST_CASE("what follows the question that a rank left open begins as a sentence", "[native][unit]") {
    const auto what = GENERATE(values<std::string>({"split", "shrink", "barrier"}));
    const auto errors = errors_of({.ranks_per_node = {3}}, [&what](Context& context) {
        if (context.rank() != 0) return;  // and leaves
        if (what == "split") static_cast<void>(context.world().split(0, 0, "part"));
        if (what == "shrink") static_cast<void>(context.world().shrink({}));
        if (what == "barrier") context.world().monitored_barrier(milliseconds(20'000), "end");
    });
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK_THAT(errors[0]->what(), Contains("steps and collectives? "));
    for (const char* const doubled : {"?.", "?;", "..", "?,"}) CHECK_THAT(errors[0]->what(), !Contains(doubled));
    if (what == "split") CHECK_THAT(errors[0]->what(), Contains("collectives? Call shrink() to go on"));
    if (what == "shrink") CHECK_THAT(errors[0]->what(), Contains("collectives? Call shrink() again"));
}

TEST_CASE("ranks of a group that counts otherwise than the job are named with their global rank, too",
          "[native][p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 2}, {1, 1, 1, 1}}));
    const auto what = GENERATE(values<std::string>({"mismatch", "deadline", "p2p", "barrier"}));
    Gate gate(4);
    std::promise<void> told;  // to rank 3, that what it is late for has failed
    const auto call = [&](ProcessGroup& group) {
        float value = 0;
        const OpOptions soon{.timeout = milliseconds(200)};
        if (what == "barrier") return group.monitored_barrier(milliseconds(200), "end");
        if (what == "p2p") return group.recv(value, 1, 0, soon).wait();
        group.all_reduce(value, ReduceOp::Sum, soon).wait();
    };
    const auto errors =
        errors_of({.ranks_per_node = shape}, behind(gate, [&](Context& context) {
                      const auto group = context.world().split(context.rank() % 2, context.rank(), "half");
                      if (context.rank() % 2 == 0) return;  // of the other half
                      if (context.rank() == 3) {
                          if (what == "mismatch") return group->barrier().wait();
                          return static_cast<void>(told.get_future().wait_for(std::chrono::seconds(20)));
                      }
                      try {
                          call(*group);
                      } catch (...) {
                          told.set_value();
                          throw;
                      }
                  }));
    CAPTURE(what);
    REQUIRE(errors[1]);
    INFO(errors[1]->what());
    CHECK_THAT(errors[1]->what(), Contains("rank 1 (global rank 3, host ") && !Contains("rank 1 (host"));
    if (what == "deadline" || what == "p2p")
        CHECK_THAT(errors[1]->what(), Contains("rank 0 (global rank 1) waited until its deadline for rank 1 (global"));
}

TEST_CASE("a rank's own name has its global rank only where it is another", "[native][unit]") {
    CHECK(detail::name_rank(3, 3, "host a, pid 7") == "rank 3 (host a, pid 7)");
    CHECK(detail::name_rank(1, 3, "host a, pid 7") == "rank 1 (global rank 3, host a, pid 7)");
    CHECK(detail::name_rank(1, 3, "") == "rank 1 (global rank 3)");
    CHECK(detail::name_rank(1, -1, "host a, pid 7") == "rank 1 (host a, pid 7)");
    CHECK(detail::name_rank(1, 1, "") == "rank 1");
}

TEST_CASE("a receive without a message names the messages of that rank that no receive takes", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto [count, sent] =
        GENERATE(table<std::size_t, std::string>({{10, "f32[10]"}, {1'000'000, "f32[1000000]"}}));
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = shape}, behind(gate, [count = count](Context& context) {
                                      std::vector<float> values(count);
                                      const Buffer all = Buffer(values);
                                      float last = 0;
                                      ProcessGroup& world = context.world();
                                      if (context.rank() == 1) {
                                          world.recv(last, 0, 8).wait();  // all before it has come, too
                                          world.recv(all, 0, 7, {.timeout = milliseconds(500)}).wait();
                                      }
                                      TransferBatch batch = world.batch();
                                      for (const int tag : {5, 5, 5, 6}) batch.send(all, 1, tag);
                                      if (context.rank() != 0) return;
                                      Work messages = batch.start({.label = "halo"});
                                      world.send(last, 1, 8).wait();
                                      messages.wait();
                                      world.barrier().wait();
                                  }));
    REQUIRE(errors[1]);
    INFO(errors[1]->what());
    CHECK(errors[1]->code() == ErrorCode::Timeout);
    const std::string one = "p2p #1 send " + sent + " to rank 1, tag 5 'halo'";
    CHECK_THAT(errors[1]->what(), Contains("in p2p #2 recv " + sent + " from rank 0, tag 7") && Contains(named(0)) &&
                                      Contains(") has sent messages without a matching receive: " + one + ", " + one +
                                               ", " + one + " and 1 more"));
}
