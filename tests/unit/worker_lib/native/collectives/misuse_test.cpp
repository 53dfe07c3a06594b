// Misuse of the collectives with two buffers: calls that are refused at once, and calls that differ between ranks,
// whose errors name both sides on all ranks.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/moved_bytes.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

std::string refusal(const std::function<Work()>& call) {
    try {
        (void)call();
    } catch (const Error& error) {
        return (error.code() == ErrorCode::InvalidArgument ? "" : "wrong code: ") + std::string(error.what());
    }
    return "accepted";
}

/// Refused calls of rank 1 of 2, each with text that its error must contain. Returns the errors that did not.
std::string check_refusals(ProcessGroup& world) {
    std::array<float, 12> memory{};
    std::array<double, 12> doubles{};
    const auto at = [&](std::size_t first, std::size_t count) { return Buffer{&memory[first], count, DType::F32}; };
    const Buffer wide = Buffer(std::span(doubles).first(4));
    const Counts counts{3, 2};
    std::string wrong;
    const auto expect = [&](const std::string& part, const std::function<Work()>& call) {
        const std::string text = refusal(call);
        if (text.find(part) == std::string::npos) wrong += "'" + text + "' lacks '" + part + "'\n";
    };
    expect("#1 all_reduce sum f32[4]: the output has 5 elements and needs 4: as many as the input",
           [&] { return world.all_reduce(at(0, 4), at(4, 5), ReduceOp::Sum); });
    expect("in place, they are the same", [&] { return world.all_reduce(at(0, 4), at(2, 4), ReduceOp::Sum); });
    expect("of different types, f64 and f32", [&] { return world.all_reduce(wide, at(0, 4), ReduceOp::Sum); });
    expect("the output is null", [&] { return world.all_reduce(at(0, 4), {nullptr, 4, DType::F32}, ReduceOp::Sum); });
    expect("#1 reduce_scatter max f32[3]: the input has 4 elements and needs 6: 3 for each of 2 ranks",
           [&] { return world.reduce_scatter(at(0, 4), at(6, 3), ReduceOp::Max); });
    expect("in place, the output is rank 1's part of the input",
           [&] { return world.reduce_scatter(at(0, 4), at(0, 2), ReduceOp::Sum); });
    expect("integers only", [&] { return world.reduce_scatter(at(0, 4), at(6, 2), ReduceOp::BitOr); });
    expect("#1 all_gather f32[2]: the output has 5 elements and needs 4: 2 for each of 2 ranks",
           [&] { return world.all_gather(at(0, 2), at(2, 5)); });
    expect("in place, the input is rank 1's part of the output", [&] { return world.all_gather(at(0, 2), at(0, 4)); });
    expect("1 counts for 2 ranks", [&] { return world.all_gather_v(at(0, 2), at(2, 2), Counts{2}); });
    expect("the input has 3 elements and needs 2: the count of rank 1",
           [&] { return world.all_gather_v(at(0, 3), at(3, 5), counts); });
    expect("the output has 6 elements and needs 5: the sum of the counts",
           [&] { return world.all_gather_v(at(0, 2), at(3, 6), counts); });
    expect("more than memory can hold", [&] { return world.all_gather_v(at(0, 2), at(3, 6), Counts{SIZE_MAX, 2}); });
    expect("more than memory can hold", [&] { return world.gather_v(at(0, 2), {}, Counts{SIZE_MAX / 8, 2}, 0); });
    expect("there is no rank 2 in a group of 2", [&] { return world.gather(at(0, 2), {}, 2); });
    expect("the output has 5 elements and needs 4", [&] { return world.gather(at(0, 2), at(2, 5), 1); });
    expect("the input has 3 elements and needs 4", [&] { return world.scatter(at(0, 3), at(4, 2), 1); });
    expect("the output has 1 elements and needs 2: the count of rank 1",
           [&] { return world.scatter_v({}, at(4, 1), counts, 0); });
    expect("does not divide into parts for 2 ranks", [&] { return world.all_to_all(at(0, 3), at(3, 3)); });
    expect("it cannot be done in place", [&] { return world.all_to_all(at(0, 4), at(0, 4)); });
    expect("the sum of the counts to send", [&] { return world.all_to_all_v(at(0, 4), counts, at(4, 5), counts); });
    expect("the sum of the counts to receive", [&] { return world.all_to_all_v(at(0, 5), counts, at(5, 4), counts); });
    return wrong;
}

using Call = std::function<Work(ProcessGroup&, std::array<float, 64>&)>;

struct Mismatch {
    Call usual;
    Call odd;  ///< what the last rank calls instead
    std::vector<std::string> sides;
};

Buffer part(std::array<float, 64>& memory, std::size_t first, std::size_t count) {
    return {&memory[first], count, DType::F32};
}

const std::vector<Mismatch>& mismatches() {
    using World = ProcessGroup&;
    using Memory = std::array<float, 64>&;
    // Worlds of three ranks.
    static const std::vector<Mismatch> all{
        {[](World w, Memory m) { return w.all_gather(part(m, 0, 2), part(m, 2, 6)); },
         [](World w, Memory m) { return w.all_gather(part(m, 0, 3), part(m, 3, 9)); },
         {"all_gather f32[2]", "all_gather f32[3]"}},
        {[](World w, Memory m) {
             return w.all_gather_v(part(m, 0, 2), part(m, 8, 6), Counts{2, 2, 2});
         },
         [](World w, Memory m) {
             return w.all_gather_v(part(m, 0, 3), part(m, 8, 6), Counts{2, 1, 3});
         },
         {"all_gather_v with different counts per rank", "all_gather_v f32[6], ", "; the first passes the counts 2, "}},
        {[](World w, Memory m) {
             return w.all_gather_v(part(m, 0, static_cast<std::size_t>(w.rank()) + 1), part(m, 8, 6), Counts{1, 2, 3});
         },
         [](World w, Memory m) {
             return w.all_gather_v(part(m, 0, 2), part(m, 8, 6), Counts{1, 3, 2});
         },
         {"; the first passes the counts 1, ", ", the second a list that is not known here: print it before the call"}},
        {[](World w, Memory m) {
             return w.all_gather_v(part(m, 0, 2), part(m, 8, 6), Counts{2, 2, 2});
         },
         [](World w, Memory m) {
             return w.all_gather_v(part(m, 0, 2), part(m, 8, 7), Counts{2, 3, 2});
         },
         {"all_gather_v with different counts: ", "all_gather_v f32[6]", "all_gather_v f32[7]",
          "; the count of rank 1 is "}},
        {[](World w, Memory m) {
             return w.gather_v(part(m, 0, static_cast<std::size_t>(w.rank()) + 1), part(m, 8, w.rank() == 0 ? 6 : 0),
                               Counts{1, 2, 3}, 0);
         },
         [](World w, Memory m) {
             return w.gather_v(part(m, 0, 3), {}, Counts{3, 3, 3}, 0);
         },
         {"gather_v f32[6] root 0", "gather_v f32[9] root 0", "; the first passes the counts "}},
        {[](World w, Memory m) { return w.gather(part(m, 0, 2), part(m, 8, 6), 0); },
         [](World w, Memory m) { return w.gather(part(m, 0, 2), part(m, 8, 6), 2); },
         {"gather f32[2] root 0", "gather f32[2] root 2"}},
        {[](World w, Memory m) { return w.scatter(part(m, 8, 6), part(m, 0, 2), 0); },
         [](World w, Memory m) { return w.gather(part(m, 0, 2), part(m, 8, 6), 0); },
         {"scatter f32[2] root 0", "gather f32[2] root 0"}},
        {[](World w, Memory m) { return w.reduce_scatter(part(m, 8, 6), part(m, 0, 2), ReduceOp::Sum); },
         [](World w, Memory m) { return w.reduce_scatter(part(m, 8, 6), part(m, 0, 2), ReduceOp::Max); },
         {"reduce_scatter sum f32[2]", "reduce_scatter max f32[2]"}},
        {[](World w, Memory m) { return w.reduce_scatter(part(m, 8, 0), part(m, 0, 0), ReduceOp::Sum); },
         [](World w, Memory m) { return w.reduce_scatter(part(m, 8, 0), part(m, 0, 0), ReduceOp::Max); },
         {"reduce_scatter sum f32[0]", "reduce_scatter max f32[0]"}},
        {[](World w, Memory m) { return w.reduce(part(m, 0, 2), part(m, 8, 2), ReduceOp::Sum, 1); },
         [](World w, Memory m) { return w.all_reduce(part(m, 0, 2), part(m, 8, 2), ReduceOp::Sum); },
         {"reduce sum f32[2] root 1", "all_reduce sum f32[2]"}},
        {[](World w, Memory m) { return w.all_to_all(part(m, 0, 6), part(m, 8, 6)); },
         [](World w, Memory m) { return w.all_to_all(part(m, 0, 9), part(m, 9, 9)); },
         {"all_to_all f32[6]", "all_to_all f32[9]"}},
        {[](World w, Memory m) {
             return w.all_to_all_v(part(m, 0, 3), Counts{1, 1, 1}, part(m, 8, 3), Counts{1, 1, 1});
         },
         [](World w, Memory m) {
             return w.all_to_all_v(part(m, 0, 4), Counts{2, 1, 1}, part(m, 8, 3), Counts{1, 1, 1});
         },
         {"all_to_all_v f32: " + named(2) + ") sends 2 elements to " + named(0) + "), which expects 1"}},
    };
    return all;
}

}  // namespace

TEST_CASE("buffers that do not fit together are refused at the call, and the group stays usable", "[native][unit]") {
    const auto complaints = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::string wrong = context.rank() == 1 ? check_refusals(context.world()) : "";
        context.world().barrier().wait();
        return wrong;
    });
    CHECK(complaints[1] == "");
}

TEST_CASE("a total size that overflows is refused", "[native][unit]") {
    const auto refusals = run_ranks({.ranks_per_node = {4}}, [](Context& context) -> std::string {
        if (context.rank() != 0) return {};
        std::byte memory{};
        const Buffer quarter{&memory, std::size_t{1} << 62, DType::U8};  // of 2^64 bytes, which is 0 again
        const Buffer nothing{&memory, 0, DType::U8};
        return refusal([&] { return context.world().all_gather(quarter, nothing); }) + "\n" +
               refusal([&] { return context.world().reduce_scatter(nothing, quarter, ReduceOp::Sum); });
    });
    CHECK_THAT(refusals[0], Catch::Contains("#1 all_gather u8[4611686018427387904]: the whole") &&
                                Catch::Contains("#1 reduce_scatter sum u8[4611686018427387904]: the whole") &&
                                Catch::Contains("more than memory can hold"));
}

TEST_CASE("an empty buffer overlaps with no other", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        std::array<int, 2> memory{7, 8};
        const Buffer all = Buffer(memory);
        const Buffer inside{&memory[1], 0, DType::I32};
        context.world().gather_v(context.rank() == 0 ? inside : all, all, Counts{0, 2}, 0).wait();
        return memory;
    });
    CHECK(results[0] == std::array<int, 2>{7, 8});
}

TEST_CASE("if ranks call different operations, all get an error that names both", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {2, 1}, {1, 2}, {1, 1, 1}}));
    const std::size_t number = GENERATE(range(std::size_t{0}, mismatches().size()));
    const Mismatch& one = mismatches().at(number);
    CAPTURE(shape.size(), shape[0], number);
    const LocalWorld world{.ranks_per_node = shape};
    Gate gate(world.size());
    const auto began = std::chrono::steady_clock::now();
    const auto errors = errors_of(world, behind(gate, [&](Context& context) {
                                      std::array<float, 64> memory{};
                                      (context.rank() == 2 ? one.odd : one.usual)(context.world(), memory).wait();
                                  }));
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(15));
    for (const auto& error : errors) {
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->code() == ErrorCode::Mismatch);
        for (const auto& side : one.sides) CHECK_THAT(error->what(), Catch::Contains(side));
        const std::string_view text = error->what();
        CHECK(text.find("group 'world'") == text.rfind("group 'world'"));
        // Only ranks that see all others know the culprit; of two counts that do not match, neither is.
        const bool is_between_two = std::string(error->what()).find("which expects") != std::string::npos;
        CHECK(error->culprits() == (shape.size() == 1 && !is_between_two ? std::vector<int>{2} : std::vector<int>{}));
    }
}

TEST_CASE("if two ranks call different operations, neither is the culprit", "[native][unit]") {
    const auto errors = errors_of({.ranks_per_node = {2}}, [](Context& context) {
        std::array<float, 2> memory{};
        context.world().all_reduce({memory.data(), 1 + static_cast<std::size_t>(context.rank())}, ReduceOp::Sum).wait();
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Mismatch);
        CHECK(error->culprits().empty());
    }
}
