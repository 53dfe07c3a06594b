// Out-of-place all_reduce, reduce and reduce_scatter against the slow reference, bit for bit: worlds of all shapes, all
// types and reductions, awkward counts, in place and apart, inside and outside the arena.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/network_rules.hpp"
#include "tests/unit/worker_lib/support/reduction_cases.hpp"
#include "tests/unit/worker_lib/support/settings.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

enum class Form { kAllReduce, kAllReduceInPlace, kReduce, kReduceInPlace, kReduceScatter, kReduceScatterInPlace };

bool is_scatter(Form form) { return form == Form::kReduceScatter || form == Form::kReduceScatterInPlace; }
bool is_in_place(Form form) {
    return form == Form::kAllReduceInPlace || form == Form::kReduceInPlace || form == Form::kReduceScatterInPlace;
}

Bytes bytes_at(const std::byte* memory, std::size_t bytes) { return {memory, memory + bytes}; }

/// One call on one rank: its input, the reduced result (both whole), and what was wrong.
class ReductionCall {
public:
    ReductionCall(Context& context, RankMemory& place, const Case& one, Form form, const Bytes& input,
                  const Bytes& reduced)
        : context_(context), place_(place), one_(one), form_(form), input_(input), reduced_(reduced) {}

    std::string run(int root) {
        const auto rank = static_cast<std::size_t>(context_.rank());
        const std::size_t part = one_.count * size_of(one_.type);
        const std::size_t begin = is_scatter(form_) ? rank * part : 0;
        const bool in_place = is_in_place(form_);
        const bool gets = (form_ != Form::kReduce && form_ != Form::kReduceInPlace) || context_.rank() == root;
        std::byte* const in = place_.copy_of(input_);
        if (rank % 3 == 1) place_.change_sides();  // so that inputs and outputs mix, too
        std::byte* const out = in_place ? in + begin : place_.allocate(part);
        if (rank % 3 == 1) place_.change_sides();
        start({in, input_.size() / size_of(one_.type), one_.type}, {gets ? out : nullptr, one_.count, one_.type}, root)
            .wait();

        Bytes expected = input_;
        const Bytes mine(reduced_.begin() + static_cast<std::ptrdiff_t>(begin),
                         reduced_.begin() + static_cast<std::ptrdiff_t>(begin + part));
        if (in_place && gets)
            std::copy(mine.begin(), mine.end(), expected.begin() + static_cast<std::ptrdiff_t>(begin));
        if (const auto at = first_difference(bytes_at(in, input_.size()), expected, one_.type); at >= 0)
            return complaint("input", at);
        if (!gets) return {};
        const auto at = first_difference(bytes_at(out, part), mine, one_.type);
        return at < 0 ? "" : complaint("output", at);
    }

private:
    std::string complaint(const char* what, std::ptrdiff_t at) const {
        return fmt::format("rank {}: form {}: {}: the {} is wrong at {}\n", context_.rank(), static_cast<int>(form_),
                           one_.text(), what, at);
    }

    Work start(Buffer in, Buffer out, int root) {
        ProcessGroup& world = context_.world();
        if (is_scatter(form_)) return world.reduce_scatter(in, out, one_.op);
        if (form_ == Form::kAllReduce) return world.all_reduce(in, out, one_.op);
        if (form_ == Form::kAllReduceInPlace) return world.all_reduce(in, one_.op);
        return world.reduce(in, context_.rank() == root ? out : Buffer{}, one_.op, root);
    }

    Context& context_;
    RankMemory& place_;
    const Case& one_;
    const Form form_;
    const Bytes& input_;
    const Bytes& reduced_;
};

/// All cases in all forms, in one world.
std::string run_cases(const Setting& setting, const std::vector<Case>& cases, const std::vector<Form>& forms) {
    struct Round {
        Form form;
        const Case& one;
        std::size_t whole;  ///< elements
        Inputs inputs;
    };
    const std::size_t ranks = setting.size();
    std::vector<Round> rounds;
    for (const Form form : forms) {
        for (const Case& one : cases) {
            const std::size_t whole = is_scatter(form) ? one.count * ranks : one.count;
            rounds.push_back({form, one, whole, make_inputs(one, whole, setting.world.ranks_per_node)});
        }
    }
    return complaints(setting, [&](Context& context, RankMemory& place) {
        std::string wrong;
        for (std::size_t i = 0; i < rounds.size() && wrong.empty(); ++i) {
            const auto& [form, one, whole, inputs] = rounds[i];
            const std::size_t bytes = whole * size_of(one.type);
            const Bytes input = repeat(inputs.of_rank[static_cast<std::size_t>(context.rank())], bytes);
            const Bytes reduced = repeat(inputs.reduced, bytes);
            wrong = ReductionCall(context, place, one, form, input, reduced).run(static_cast<int>(i % ranks));
        }
        return wrong;
    });
}

const std::vector<Form> kForms{Form::kAllReduce,     Form::kAllReduceInPlace, Form::kReduce,
                               Form::kReduceInPlace, Form::kReduceScatter,    Form::kReduceScatterInPlace};

}  // namespace

TEST_CASE("all types and reductions into other buffers, to one rank and to parts", "[native][unit]") {
    const Setting setting = GENERATE(from_range(settings({{2}, {3}, {1, 1}, {3, 1}, {1, 3, 2}, {4, 4}})));
    CAPTURE(setting.text());
    auto counts = awkward_counts(setting.size(), 57);
    if (setting.memory != Memory::kMixed || !kThorough) counts = {1, 57};
    CHECK(run_cases(setting, all_types_and_ops(counts), kForms) == "");
}

TEST_CASE("reductions among one to nine ranks, on one node and on several, of awkward counts", "[native][unit]") {
    const Setting setting = GENERATE(from_range(settings(
        {{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {1, 1}, {2, 2}, {3, 1}, {1, 3, 2}, {1, 6}, {4, 4}, {3, 3, 3}})));
    CAPTURE(setting.text());
    auto counts = awkward_counts(setting.size(), 57);
    if (kThorough) counts.push_back(20'001);
    std::vector<Case> cases;
    for (const std::size_t count : counts) {
        cases.push_back({DType::F32, ReduceOp::Sum, count});
        cases.push_back({DType::BF16, ReduceOp::Avg, count});
        cases.push_back({DType::U8, ReduceOp::Max, count});
    }
    CHECK(run_cases(setting, cases, kForms) == "");
}

TEST_CASE("zeros, subnormals, infinities and NaN pass through every kind of reduction as IEEE 754 has it",
          "[native][unit]") {
    const Setting setting = GENERATE(from_range(settings({{2}, {3}, {2, 2}})));
    CAPTURE(setting.text());
    // The first is exchanged beside the announcements, where that is done; the second is too long for it.
    CHECK(run_cases(setting, hard_cases({300, kPeriod}), kForms) == "");
}

TEST_CASE("between nodes special values pass through every algorithm", "[native][unit]") {
    const char* const text = GENERATE(from_range(kRules));
    const Rules rules(text);
    for (const Shape& shape : {Shape{1, 1}, Shape{1, 1, 1}, Shape{2, 1}}) {
        const Setting setting{LocalWorld{.ranks_per_node = shape}, Memory::kMixed};
        CAPTURE(text, setting.text());
        CHECK(run_cases(setting, hard_cases({300, kPeriod}), {Form::kAllReduceInPlace, Form::kReduce}) == "");
    }
}

TEST_CASE("reductions of counts that take several pieces", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{2}, {2, 1}, {1, 2, 2}})));
    const auto form = GENERATE(from_range(kForms));
    CAPTURE(setting.text(), static_cast<int>(form));
    // Twice, for the second passes the slots another way.
    const std::vector<Case> cases(2, {DType::F64, ReduceOp::Sum, is_scatter(form) ? 100'001u : 600'001u});
    CHECK(run_cases(setting, cases, {form}) == "");
}

TEST_CASE("between nodes of one rank reduce_scatter uses more pieces than may be under way", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{1, 1}, {1, 1, 1}})));
    const auto form = GENERATE(Form::kReduceScatter, Form::kReduceScatterInPlace);
    CAPTURE(setting.text(), static_cast<int>(form));
    const std::vector<Case> cases{{DType::F64, ReduceOp::Sum, 300'001}, {DType::BF16, ReduceOp::Avg, 400'003}};
    CHECK(run_cases(setting, cases, {form}) == "");
}

TEST_CASE("between nodes all_reduce and reduce pass in pieces through every algorithm, in place and apart",
          "[native][unit]") {
    const char* const text = GENERATE(from_range(kRules));
    const auto form = GENERATE(Form::kAllReduce, Form::kReduce, Form::kReduceInPlace);
    const Rules rules(text);
    // As often as there are ranks in the largest of these worlds: each is the root once.
    const std::vector<Case> cases{{DType::F32, ReduceOp::Sum, 200'001},
                                  {DType::F32, ReduceOp::Min, 200'001},
                                  {DType::F16, ReduceOp::Avg, 200'001}};
    for (const Setting& setting : long_settings({{1, 1}, {1, 1, 1}, {2, 1}})) {
        CAPTURE(text, setting.text(), static_cast<int>(form));
        CHECK(run_cases(setting, cases, {form}) == "");
    }
}
