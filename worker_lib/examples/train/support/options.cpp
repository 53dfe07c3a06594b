#include "support/options.hpp"

#include <charconv>
#include <limits>
#include <map>
#include <utility>

#include "support/user_error.hpp"

namespace train {
namespace {

/// Parses all of `text` as a number from min to max, which `expected` describes.
template <typename Number>
Number parse(const std::string& text, Number min, Number max, const std::string& expected) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number >= min && number <= max) return number;
    throw UserError("'" + text + "' is not " + expected);
}

std::uint64_t whole(const std::string& text, std::uint64_t min, std::uint64_t max = 1u << 30) {
    return parse(text, min, max, concat("a whole number from ", min, " to ", max));
}

float positive(const std::string& text) {
    using Limits = std::numeric_limits<float>;
    return parse(text, Limits::min(), Limits::max(), "a positive number");
}

/// Returns the value that belongs to one of the names.
template <typename T>
T one_of(const std::string& text, const std::vector<std::pair<std::string, T>>& values) {
    std::string names;
    for (const auto& [name, value] : values) {
        if (name == text) return value;
        names += (names.empty() ? "" : name == values.back().first ? " or " : ", ") + name;
    }
    throw UserError("'" + text + "' is not " + names);
}

using Setter = void (*)(Options& options, const std::string& value);
const std::map<std::string, Setter> kSetters = {
    {"--steps", [](auto& options, auto& value) { options.steps = whole(value, 1); }},
    {"--global-batch", [](auto& options, auto& value) { options.global_batch = whole(value, 1); }},
    {"--optimizer",
     [](auto& options, auto& value) {
         options.optimizer = one_of<Optimizer>(value, {{"sgd", Optimizer::kSgd}, {"adamw", Optimizer::kAdamW}});
     }},
    {"--sharding",
     [](auto& options, auto& value) {
         using ddp::Sharding;
         options.sharding = one_of<Sharding>(value, {{"full", Sharding::Full},
                                                     {"grad", Sharding::GradOp},
                                                     {"optimizer", Sharding::Optimizer},
                                                     {"none", Sharding::None}});
     }},
    {"--param-dtype",
     [](auto& options, auto& value) {
         using ddp::DType;
         options.param_dtype = one_of<DType>(value, {{"f32", DType::F32}, {"bf16", DType::BF16}, {"f16", DType::F16}});
     }},
    {"--lr", [](auto& options, auto& value) { options.rate = positive(value); }},
    {"--seed", [](auto& options, auto& value) { options.seed = whole(value, 0, UINT64_MAX); }},
    {"--hidden1", [](auto& options, auto& value) { options.shape.hidden1 = whole(value, 1); }},
    {"--hidden2", [](auto& options, auto& value) { options.shape.hidden2 = whole(value, 1); }},
    {"--data", [](auto& options, auto& value) { options.data.emplace_back(value); }},
    {"--checkpoint-dir", [](auto& options, auto& value) { options.checkpoint_dir = value; }},
    {"--checkpoint-every", [](auto& options, auto& value) { options.checkpoint_every = whole(value, 0); }},
    {"--loss-log", [](auto& options, auto& value) { options.loss_log = value; }},
    {"--device",
     [](auto& options, auto& value) {
         options.device = one_of<ddp::Device>(value, {{"cpu", ddp::Device::Cpu}, {"cuda", ddp::Device::Cuda}});
     }},
    {"--progress",
     [](auto& options, auto& value) {
         options.progress = one_of<bool>(value, {{"plain", true}, {"none", false}});
     }},
};

const std::map<std::string, bool Options::*> kFlags = {
    {"--help", &Options::help}, {"--no-overlap", &Options::no_overlap}, {"--plan", &Options::plan}};

/// Throws UserError for options that exclude each other.
void check_together(const Options& options, bool saves) {
    if (saves && options.checkpoint_dir.empty())
        throw UserError("--checkpoint-every: there is no directory to save to. Pass --checkpoint-dir, too");
    if (!options.sharding && options.param_dtype)
        throw UserError("--param-dtype: without --sharding no parameters are gathered. Pass --sharding, too");
    if (!options.sharding && options.plan)
        throw UserError("--plan: it shows what --sharding divides. Pass --sharding full, grad, optimizer or none, too");
    if (options.sharding && options.device == ddp::Device::Cuda)
        throw UserError("--sharding: parts of a model are in host memory. Pass --device cpu, or leave out --sharding");
    if (options.sharding && options.no_overlap)
        throw UserError("--sharding: a layer is reduced when its gradients are complete. Leave out --no-overlap");
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
    Options options;
    bool saves = false;
    for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
        const std::size_t equals = argument->find('=');
        const std::string name = argument->substr(0, equals);
        const auto setter = kSetters.find(name);
        const auto flag = kFlags.find(name);
        saves = saves || name == "--checkpoint-every";
        try {
            if (flag != kFlags.end() && equals == std::string::npos) {
                options.*flag->second = true;
            } else if (setter == kSetters.end()) {
                throw UserError(flag != kFlags.end()    ? "this option takes no value"
                                : name.starts_with("-") ? "no such option"
                                                        : "unexpected argument");
            } else if (equals != std::string::npos) {
                setter->second(options, argument->substr(equals + 1));
            } else if (++argument != arguments.end()) {
                setter->second(options, *argument);
            } else {
                throw UserError("a value is missing");
            }
        } catch (const UserError& error) {
            throw UserError(name + ": " + error.what() + ". See train --help");
        }
    }
    check_together(options, saves);
    return options;
}

}  // namespace train
