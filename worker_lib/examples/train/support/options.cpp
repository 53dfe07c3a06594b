#include "support/options.hpp"

#include <charconv>
#include <limits>
#include <map>

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

bool plain_or_none(const std::string& text) {
    if (text != "plain" && text != "none") throw UserError("'" + text + "' is not plain or none");
    return text == "plain";
}

ddp::Device cpu_or_cuda(const std::string& text) {
    if (text != "cpu" && text != "cuda") throw UserError("'" + text + "' is not cpu or cuda");
    return text == "cuda" ? ddp::Device::Cuda : ddp::Device::Cpu;
}

using Setter = void (*)(Options& options, const std::string& value);
const std::map<std::string, Setter> kSetters = {
    {"--steps", [](auto& options, auto& value) { options.steps = whole(value, 1); }},
    {"--global-batch", [](auto& options, auto& value) { options.global_batch = whole(value, 1); }},
    {"--lr", [](auto& options, auto& value) { options.rate = positive(value); }},
    {"--seed", [](auto& options, auto& value) { options.seed = whole(value, 0, UINT64_MAX); }},
    {"--hidden1", [](auto& options, auto& value) { options.shape.hidden1 = whole(value, 1); }},
    {"--hidden2", [](auto& options, auto& value) { options.shape.hidden2 = whole(value, 1); }},
    {"--data", [](auto& options, auto& value) { options.data.emplace_back(value); }},
    {"--checkpoint-dir", [](auto& options, auto& value) { options.checkpoint_dir = value; }},
    {"--checkpoint-every", [](auto& options, auto& value) { options.checkpoint_every = whole(value, 0); }},
    {"--loss-log", [](auto& options, auto& value) { options.loss_log = value; }},
    {"--device", [](auto& options, auto& value) { options.device = cpu_or_cuda(value); }},
    {"--progress", [](auto& options, auto& value) { options.progress = plain_or_none(value); }},
};

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
    Options options;
    bool saves = false;
    for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
        const std::size_t equals = argument->find('=');
        const std::string name = argument->substr(0, equals);
        const auto setter = kSetters.find(name);
        saves = saves || name == "--checkpoint-every";
        try {
            if (*argument == "--help") {
                options.help = true;
            } else if (*argument == "--no-overlap") {
                options.overlap = false;
            } else if (setter == kSetters.end()) {
                const bool is_flag = name == "--help" || name == "--no-overlap";
                throw UserError(is_flag                 ? "this option takes no value"
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
    if (saves && options.checkpoint_dir.empty())
        throw UserError("--checkpoint-every: there is no directory to save to. Pass --checkpoint-dir, too");
    return options;
}

}  // namespace train
