// Checks every way to exchange gradients, with every way to pass and to count them, against averages computed here.
//
// Gradients are multiples of 12, small enough for their sums to be exact in all types: so are their averages over one
// to four ranks, and every combination has to come to the same numbers.
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include "ddp/ddp.hpp"
#include "ddp/float16.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using ddp::Average;
using ddp::Buffer;
using ddp::Context;
using ddp::DType;
using ddp::GradientReducer;
using ddp::Join;
using ddp::ParamSpec;
using ddp::testing::run_ranks;

namespace {

constexpr ddp::BucketLimits kLimits{.bucket_cap_bytes = 1024, .first_bucket_cap_bytes = 200};

const std::vector<ParamSpec> kParams{
    {"plain", 40},
    {"empty", 0},
    {"tied", 3, DType::F32, 2},
    {"half", 33, DType::F16},
    {"brain", 7, DType::BF16},
    {"wide", 4, DType::F64},
    {"giant", 3000},
    {"sometimes", 6},
    {"never", 2},
};
constexpr std::size_t kSometimes = 7;  // the last rank uses it in every second step
constexpr std::size_t kNever = 8;

enum class Exchange { kAuto, kPre, kPost, kInReduce, kHalf, kBrain, kFeedback };
enum class Uneven { kNo, kByAll, kByActive };

/// One row of the table.
struct Case {
    Exchange exchange = Exchange::kAuto;
    Uneven uneven = Uneven::kNo;
    bool bound = false;
    bool rebuild = false;
    bool accumulate = false;  ///< every second backward synchronises
    bool leave_out = false;   ///< gradients without use are not marked at all
    bool callback = false;
    bool check = false;
};

std::vector<Case> table() {
    std::vector<Case> cases;
    for (int exchange = 0; exchange <= static_cast<int>(Exchange::kFeedback); ++exchange) {
        for (const Uneven uneven : {Uneven::kNo, Uneven::kByAll, Uneven::kByActive}) {
            for (unsigned bits = 0; bits < 8; ++bits) {
                const unsigned more = bits + static_cast<unsigned>(exchange);  // so that these meet all the others
                cases.push_back({.exchange = static_cast<Exchange>(exchange),
                                 .uneven = uneven,
                                 .bound = (bits & 1) != 0,
                                 .rebuild = (bits & 2) != 0,
                                 .accumulate = (bits & 4) != 0,
                                 .leave_out = (more & 1) != 0,
                                 .callback = (more & 2) != 0,
                                 .check = (more & 3) == 0});
            }
        }
    }
    return cases;
}

ddp::ReducerOptions options_of(const Case& row, std::function<void(const ddp::GradBucket&)> callback) {
    ddp::ReducerOptions options{.limits = kLimits, .rebuild = row.rebuild, .find_unused = true};
    switch (row.exchange) {
        case Exchange::kAuto: break;
        case Exchange::kPre: options.average = Average::Pre; break;
        case Exchange::kPost: options.average = Average::Post; break;
        case Exchange::kInReduce: options.average = Average::InReduce; break;
        case Exchange::kHalf: options.hook = ddp::compress(DType::F16); break;
        case Exchange::kBrain: options.hook = ddp::compress(DType::BF16); break;
        case Exchange::kFeedback: options.hook = ddp::compress(DType::BF16, {.error_feedback = true}); break;
    }
    if (row.leave_out) options.unused = ddp::UnusedPolicy::Zero;
    if (row.callback) options.on_bucket_done = std::move(callback);
    options.check_every_step = row.check;
    return options;
}

double get(const Buffer& buffer, std::size_t j) {
    const auto read = [&](auto value) {
        std::memcpy(&value, static_cast<const std::byte*>(buffer.data) + j * sizeof value, sizeof value);
        return value;
    };
    switch (buffer.dtype) {
        case DType::F16: return float{read(ddp::Float16{})};
        case DType::BF16: return float{read(ddp::BFloat16{})};
        case DType::F64: return read(double{});
        default: return static_cast<double>(read(float{}));
    }
}

void set(const Buffer& buffer, std::size_t j, double number) {
    const auto write = [&](auto value) {
        std::memcpy(static_cast<std::byte*>(buffer.data) + j * sizeof value, &value, sizeof value);
    };
    switch (buffer.dtype) {
        case DType::F16: return write(ddp::Float16(static_cast<float>(number)));
        case DType::BF16: return write(ddp::BFloat16(static_cast<float>(number)));
        case DType::F64: return write(number);
        default: return write(static_cast<float>(number));
    }
}

/// Returns rank `rank`'s gradient of its batch number `batch`, from 0.
double gradient(int rank, int batch, std::size_t param, std::size_t j) {
    return 12.0 * static_cast<double>(1 + (param + j + static_cast<std::size_t>(3 * rank + batch)) % 5);
}

constexpr int kBatches = 4;
/// The last rank has all of them.
int batches_of(const Case& row, int rank, int ranks) {
    return row.uneven == Uneven::kNo || rank == ranks - 1 ? kBatches : 1 + 2 * rank;
}
bool synchronises(const Case& row, int batch) { return !row.accumulate || batch % 2 == 1; }
bool uses(int rank, int ranks, int batch, std::size_t param) {
    return param != kNever && (param != kSometimes || (rank == ranks - 1 && batch / 2 % 2 == 0));
}

/// Returns the averages that the synchronised backward of `batch` should give.
double average(const Case& row, int ranks, int batch, std::size_t param, std::size_t j) {
    double sum = 0;
    int active = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        if (batch < batches_of(row, rank, ranks)) ++active;
        for (int b = row.accumulate ? batch - 1 : batch; b <= batch; ++b)
            if (b < batches_of(row, rank, ranks) && uses(rank, ranks, b, param)) sum += gradient(rank, b, param, j);
    }
    return sum / (row.uneven == Uneven::kByActive ? active : ranks);
}

/// Trains on one rank and returns what is wrong; empty: nothing.
class Training {
public:
    Training(Context& context, const Case& row)
        : context_(context),
          row_(row),
          reducer_(context.world(), kParams,
                   options_of(row, [this](const ddp::GradBucket& bucket) { callbacks_ += bucket.gradients.size(); })) {
        bound_.reserve(kParams.size());
        for (std::size_t i = 1; row.bound && i < kParams.size(); i += 2) {
            bound_.emplace_back(kParams[i].count);  // of the widest type
            reducer_.bind(i, {bound_.back().data(), kParams[i].count, kParams[i].dtype});
        }
    }

    std::string run() {
        std::optional<Join> join;
        if (row_.uneven != Uneven::kNo)
            join.emplace(context_.world(), reducer_,
                         ddp::JoinOptions{.divide_by_initial = row_.uneven == Uneven::kByAll});
        const int mine = batches_of(row_, context_.rank(), context_.world_size());
        for (int batch = 0; join ? join->more(batch < mine, {.sync = synchronises(row_, batch)}) : batch < mine;
             ++batch) {
            backward(batch);
            if (!wrong_.empty()) return wrong_;
        }
        check_averages(kBatches - 1, "at the end");
        if (row_.callback && callbacks_ != kParams.size() * reducer_.stats().steps) wrong_ += "callbacks are missing; ";
        if (!row_.leave_out && reducer_.plan() != last_plan()) wrong_ += "the plan is another one; ";
        return wrong_;
    }

private:
    void backward(int batch) {
        const bool sync = synchronises(row_, batch);
        reducer_.begin_backward(sync);
        for (std::size_t i = 0; i < kParams.size(); ++i) {
            if (uses(context_.rank(), context_.world_size(), batch, i)) {
                write(batch, i);
            } else if (!row_.leave_out) {
                reducer_.mark_unused(i);
            }
        }
        const ddp::BackwardResult step = reducer_.finish_backward();
        if (step.synchronised != sync) wrong_ += "synchronised at the wrong time; ";
        if (!sync) return;
        check_averages(batch, "in batch " + std::to_string(batch));
        if (step.used.size() != kParams.size() || step.used[kNever] || !step.used[0] ||
            step.used[kSometimes] != sometimes(batch))
            wrong_ += "used is wrong in batch " + std::to_string(batch) + "; ";
    }

    void write(int batch, std::size_t i) {
        const bool adds = row_.accumulate && batch % 2 == 1;
        const bool had = adds && uses(context_.rank(), context_.world_size(), batch - 1, i);
        const Buffer view = reducer_.grad(i);
        for (std::size_t j = 0; j < view.count; ++j)
            set(view, j, gradient(context_.rank(), batch, i, j) + (had ? get(view, j) : 0));
        reducer_.mark_ready(i);
        if (kParams[i].uses == 2 && !row_.leave_out) reducer_.mark_ready(i);
    }

    /// Returns whether the last rank has used it since the previous synchronised backward.
    [[nodiscard]] bool sometimes(int batch) const {
        const int last = context_.world_size() - 1;
        return uses(last, last + 1, batch, kSometimes);
    }

    /// Rank 0 goes through the parameters as they were registered; when the others synchronise, it may have ended.
    [[nodiscard]] ddp::BucketPlan last_plan() const {
        std::vector<std::size_t> order(kParams.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const bool has_order = row_.uneven == Uneven::kNo || !row_.accumulate;
        if (row_.rebuild && has_order) return plan_buckets(kParams, kLimits, order);
        return plan_buckets(kParams, kLimits);
    }

    void check_averages(int batch, const std::string& when) {
        for (std::size_t i = 0; i < kParams.size(); ++i) {
            const Buffer view = reducer_.grad(i);
            for (std::size_t j = 0; j < view.count; ++j) {
                const double wanted = average(row_, context_.world_size(), batch, i, j);
                if (std::abs(get(view, j) - wanted) <= 1e-6 * wanted) continue;
                wrong_ += kParams[i].name + "[" + std::to_string(j) + "] is " + std::to_string(get(view, j)) +
                          ", not " + std::to_string(wanted) + ", " + when + "; ";
                break;
            }
        }
    }

    Context& context_;
    const Case& row_;
    std::size_t callbacks_ = 0;
    std::vector<std::vector<double>> bound_;
    std::string wrong_;
    GradientReducer reducer_;
};

}  // namespace

TEST_CASE("every combination of options gives the same averages", "[reducer]") {
    const auto nodes = GENERATE(std::vector<int>{2}, std::vector<int>{2, 1});
    CAPTURE(nodes);
    const std::vector<Case> cases = table();
    const auto wrong = run_ranks({.ranks_per_node = nodes}, [&](Context& context) {
        for (std::size_t i = 0; i < cases.size(); ++i) {
            const std::string text = Training(context, cases[i]).run();
            const Case& row = cases[i];
            if (!text.empty())
                return "exchange " + std::to_string(static_cast<int>(row.exchange)) + ", uneven " +
                       std::to_string(static_cast<int>(row.uneven)) + (row.bound ? ", bound" : "") +
                       (row.rebuild ? ", rebuild" : "") + (row.accumulate ? ", accumulate" : "") +
                       (row.leave_out ? ", leave_out" : "") + (row.callback ? ", callback" : "") +
                       (row.check ? ", check" : "") + ": " + text;
        }
        return std::string();
    });
    for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("a reducer without parameters makes steps like any other", "[reducer]") {
    const bool hook = GENERATE(false, true);
    CAPTURE(hook);
    const auto outcomes = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        ddp::ReducerOptions options{.rebuild = true, .find_unused = true, .check_every_step = true};
        if (hook) options.hook = ddp::compress(DType::BF16);
        GradientReducer reducer(context.world(), {}, options);
        Join join(context.world(), reducer);
        for (int step = 0; join.more(step < 2 + context.rank()); ++step) {
            reducer.begin_backward();
            if (!reducer.finish_backward().synchronised) return std::uint64_t{0};
        }
        return reducer.stats().steps + reducer.plan().buckets.size();
    });
    CHECK(outcomes == std::vector<std::uint64_t>{3, 3});
}
