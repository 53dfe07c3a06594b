#include "worker_lib/bench/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "worker_lib/bench/output.hpp"
#include "worker_lib/bench/run.hpp"

namespace ddp::bench {
namespace {

constexpr int kMaxCalls = 100'000'000;
constexpr int kTextLost = 74;  // docs/exit-codes.md
constexpr int kLastRank = 999'999;
/// CLI11 would accept a value, as in "--check=no".
constexpr std::array kFlags{"--check", "--no-check", "--foreign", "--rewrite", "--no-rewrite", "--help", "--version"};
const std::vector kTypes{DType::I8,  DType::U8,  DType::I16, DType::U16,  DType::I32, DType::U32,
                         DType::I64, DType::U64, DType::F16, DType::BF16, DType::F32, DType::F64};
const std::vector kOps{ReduceOp::Sum,     ReduceOp::Avg,    ReduceOp::Min,   ReduceOp::Max,
                       ReduceOp::Product, ReduceOp::BitAnd, ReduceOp::BitOr, ReduceOp::BitXor};
const std::vector kBackends{Backend::Auto, Backend::Native, Backend::Nccl};

/// Returns the element of `values` whose to_string() is `name`. Precondition: one_of(values) has accepted the name.
/// (CLI11's own conversion of enumerations conflicts with their to_string().)
template <typename Value>
Value named(const std::string& name, const std::vector<Value>& values) {
    for (const Value value : values) {
        if (name == to_string(value)) return value;
    }
    throw CLI::ValidationError(name, "unknown");  // unreachable: see the precondition
}

template <typename Value>
CLI::IsMember one_of(const std::vector<Value>& values) {
    std::vector<std::string> names;
    for (const Value value : values) names.emplace_back(to_string(value));
    return CLI::IsMember(names);
}

std::map<std::string, std::size_t> size_units() {
    return {{"k", std::size_t{1} << 10}, {"m", std::size_t{1} << 20}, {"g", std::size_t{1} << 30}};
}

/// Accepts a number in a range. CLI11's own error texts name C++ types.
template <typename Number>
CLI::Validator between(Number low, Number high) {
    return {[low, high](std::string& text) -> std::string {
                Number value{};
                if (CLI::detail::lexical_cast(text, value) && low <= value && value <= high) return {};
                return fmt::format("'{}' is not a {} from {} to {}", text,
                                   std::is_integral_v<Number> ? "whole number" : "number", low, high);
            },
            "NUMBER"};
}

/// Returns whether the number fits: CLI11 would replace a larger one by the maximum.
bool fits(const std::string& text) {
    std::size_t bytes = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
    return error == std::errc() && end == text.data() + text.size();
}

/// Accepts sizes and converts "64k" to 65536.
CLI::Validator size_in_bytes() {
    const CLI::AsNumberWithUnit convert(size_units(), CLI::AsNumberWithUnit::CASE_INSENSITIVE, "BYTES");
    return {[convert](std::string& text) -> std::string {
                const std::string typed = text;
                const bool negative = text.starts_with('-');  // it would become a large number
                try {
                    if (!negative && convert(text).empty() && fits(text)) return {};
                } catch (const CLI::ValidationError&) {  // its text is about units
                }
                return fmt::format("'{}' is not a size. Pass a whole number, or one with k, m or g", typed);
            },
            "BYTES"};
}

/// Parses "all", or names separated by commas.
std::vector<Collective> parse_collectives(const std::string& text) {
    std::vector<Collective> collectives;
    for (const std::string& name : CLI::detail::split(text, ',')) {
        bool found = name == "all";
        for (const Collective collective : kAllCollectives) {
            if (name != "all" && name != name_of(collective)) continue;
            collectives.push_back(collective);
            found = true;
        }
        if (found) continue;
        std::string known = "all";
        for (const Collective collective : kAllCollectives) known += fmt::format(", {}", name_of(collective));
        throw CLI::ValidationError("--collective",
                                   fmt::format("there is no '{}'. The collectives are {}", name, known));
    }
    return collectives;
}

void check_flags(const std::vector<std::string_view>& words) {
    for (const std::string_view word : words) {
        for (const char* const flag : kFlags) {
            if (word.starts_with(std::string(flag) + '=')) throw CLI::ValidationError(flag, "takes no value");
        }
    }
}

void check(const Options& options, int ranks) {
    const auto refuse = [](const char* option, const std::string& why) { throw CLI::ValidationError(option, why); };
    if (options.max_bytes < options.min_bytes)
        refuse("--max-bytes",
               fmt::format("{} is less than --min-bytes ({}). Pass at least {}, or a smaller --min-bytes",
                           options.max_bytes, options.min_bytes, options.min_bytes));
    if (ranks > 0 && options.root >= ranks)
        refuse("--root", ranks == 1 ? fmt::format("there is no rank {}, only rank 0", options.root)
                                    : fmt::format("there is no rank {}, only ranks 0 to {}", options.root, ranks - 1));
    const bool bitwise = options.reduce_op == ReduceOp::BitAnd || options.reduce_op == ReduceOp::BitOr ||
                         options.reduce_op == ReduceOp::BitXor;
    if (bitwise && is_float(options.dtype))
        refuse("--redop",
               fmt::format("{} is for integers, not for {}", to_string(options.reduce_op), to_string(options.dtype)));
    if (options.reduce_op == ReduceOp::Avg && !is_float(options.dtype))
        refuse("--redop", fmt::format("avg is for floats, not for {}", to_string(options.dtype)));
    if (options.max_bytes > 0 && options.max_bytes < size_of(options.dtype))
        refuse(
            "--max-bytes",
            fmt::format("{} is less than one element of {} ({} bytes). Pass at least {}; or 0, with --min-bytes 0, to "
                        "measure empty operations only",
                        options.max_bytes, to_string(options.dtype), size_of(options.dtype), size_of(options.dtype)));
}

/// Throws if no collective has a row. Some may have none, if others do.
void check_that_something_is_left(const Options& options, int ranks) {
    const auto has_no_row = [&](Collective collective) { return counts(collective, options, ranks).empty(); };
    if (ranks > 0 && std::ranges::all_of(options.collectives, has_no_row))
        throw CLI::ValidationError("--max-bytes", left_out(options, ranks));
}

/// Returns the text of an error. For an option without its value that is "--iterations: a value is missing"; CLI11's
/// own text is "--iterations: 1 required UINT:NUMBER missing".
std::string text_of(const CLI::ParseError& error) {
    const std::string text = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr || !text.ends_with(" missing")) return text;
    return text.substr(0, text.find(':')) + ": a value is missing";
}

/// Options that CLI11 stores as text, before they are parsed.
struct Texts {
    std::string collectives = "all_reduce";
    std::string type = "f32";
    std::string reduce_op = "sum";
    std::string backend = "auto";
};

void add_what(CLI::App& app, Options& options, Texts& texts) {
    const CLI::Validator bytes = size_in_bytes();
    app.add_option("-c,--collective", texts.collectives, "all, or names separated by commas")
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("-b,--min-bytes", options.min_bytes, "Smallest size; k, m and g are 1024, 1024^2, 1024^3")
        ->transform(bytes)
        ->capture_default_str();
    app.add_option("-e,--max-bytes", options.max_bytes, "Largest size")->transform(bytes)->capture_default_str();
    app.add_option("-f,--factor", options.factor, "Ratio of one size to the one before")
        ->check(between(1.01, 1e9))
        ->capture_default_str();
    app.add_option("-d,--type", texts.type, "Element type")->check(one_of(kTypes))->capture_default_str();
    app.add_option("-o,--redop", texts.reduce_op, "Reduction of the collectives that reduce")
        ->check(one_of(kOps))
        ->capture_default_str();
    app.add_option("-r,--root", options.root, "Root of broadcast, reduce, gather and scatter")
        ->check(between(0, kLastRank))
        ->capture_default_str();
}

void add_how(CLI::App& app, Options& options, Texts& texts) {
    app.add_option("-n,--iterations", options.iterations, "Timed calls of each row")
        ->check(between(1, kMaxCalls))
        ->capture_default_str();
    app.add_option("-w,--warm-up", options.warm_up, "Calls before the timed ones")
        ->check(between(0, kMaxCalls))
        ->capture_default_str();
    // Not one option "--check,!--no-check": its help would have the mark {false}. The last one given counts.
    app.add_flag_callback(
           "--check", [&] { options.check = true; }, "Check every element of the results (default)")
        ->trigger_on_parse();
    app.add_flag_callback(
           "--no-check", [&] { options.check = false; }, "Do not check the results")
        ->trigger_on_parse();
    app.add_flag("--foreign", options.foreign, "Allocate the buffers outside the group's arena (host memory)");
    app.add_flag_callback(
           "--rewrite", [&] { options.rewrite = true; },
           "Rewrite the input before each call, as backward does (default from 64 KiB on, in host memory)")
        ->trigger_on_parse();
    app.add_flag_callback(
           "--no-rewrite", [&] { options.rewrite = false; },
           "Leave the input as it is, which shows what a call costs whose data is in the cache")
        ->trigger_on_parse();
    app.add_option("--backend", texts.backend, "Backend of the group")->check(one_of(kBackends))->capture_default_str();
    app.add_option("--json", options.json_file, "Write the figures there as JSON; - is stdout, without the table")
        ->check([](const std::string& name) { return name.empty() ? "pass the name of a file, or - for stdout" : ""; })
        ->type_name("FILE");
}

int show(const std::string& text, bool speaks) {
    Output output;
    if (speaks) output.write(text);
    return output.failed() ? kTextLost : 0;
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, bool speaks, int ranks, Options& options) {
    CLI::App app(
        "Measures the collectives of ddp::ddp, in the terms of nccl-tests. Run it under a launcher:\n"
        "  ddprun --nproc_per_node 4 ddp-bench --collective all\n"
        "The time of a row: each rank takes the mean over its calls, and the row has the largest of these means\n"
        "(mean_us in the JSON, whose median_us and p99_us are the largest over the ranks, too); algbw is size / time,\n"
        "busbw what the busiest link has carried. In the forms that end in _v rank r has r + 1 shares of the whole;\n"
        "their busbw is counted as that of equal parts.\n"
        "With NCCL the calls of a row are queued and waited for together, as nccl-tests do, unless --rewrite is "
        "given;\n"
        "otherwise each call is waited for.",
        "ddp-bench");
    app.set_version_flag("--version", "ddp-bench " DDPRUN_VERSION);
    Texts texts;
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    add_what(app, options, texts);
    add_how(app, options, texts);
    try {
        check_flags({argv, argv + argc});
        app.parse(argc, argv);
        options.collectives = parse_collectives(texts.collectives);
        options.dtype = named(texts.type, kTypes);
        options.reduce_op = named(texts.reduce_op, kOps);
        options.backend = named(texts.backend, kBackends);
        check(options, ranks);
        check_that_something_is_left(options, ranks);
        return std::nullopt;
    } catch (const CLI::CallForHelp&) {
        return show(app.help(), speaks);
    } catch (const CLI::CallForVersion&) {
        return show(app.version() + '\n', speaks);
    } catch (const CLI::ParseError& error) {
        if (speaks) fmt::print(stderr, "ddp-bench: {}\nTry ddp-bench --help.\n", text_of(error));
        return 2;
    }
}

}  // namespace ddp::bench
