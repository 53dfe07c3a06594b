#include "launcher/options/option_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

#include "common/ids.hpp"
#include "common/job_limits.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"

namespace ddprun::launcher {
namespace {

Error usage(std::string message) { return {Errc::kUsage, std::move(message)}; }

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const auto begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

using ConfSetter = Result<void> (*)(RdzvConf&, std::string_view);

template <auto Member>
Result<void> set_seconds(RdzvConf& conf, std::string_view text) {
    const auto seconds = parse_seconds(text, false);
    if (!seconds) return seconds.error();
    conf.*Member = *seconds;
    return {};
}

Result<void> set_is_host(RdzvConf& conf, std::string_view text) {
    const auto value = parse_bool(text);
    if (!value) return value.error();
    conf.is_host = *value;
    return {};
}

Result<void> set_node_rank(RdzvConf& conf, std::string_view text) {
    const auto rank = parse_integer(text, 0, kMaxNodes - 1);
    if (!rank) return rank.error();
    conf.node_rank = *rank;
    return {};
}

Result<void> set_store_type(RdzvConf&, std::string_view text) {
    if (text == "tcp") return {};
    if (text == "file") {
        return usage(
            "a store in a shared folder is not offered. Leave store_type out, and let the nodes meet at "
            "--rdzv-endpoint "
            "HOST:PORT.");
    }
    return usage("not a kind of store. Write tcp, or leave it out.");
}

/// Returns the parts between the commas, without blanks around them: one for an empty text.
std::vector<std::string_view> entries_of(std::string_view text) {
    std::vector<std::string_view> entries;
    for (std::size_t comma = 0; (comma = text.find(',')) != text.npos; text.remove_prefix(comma + 1))
        entries.push_back(trimmed(text.substr(0, comma)));
    entries.push_back(trimmed(text));
    return entries;
}

/// Reads "3" or "4-7": the first and the last number, from 0 up.
std::optional<std::pair<int, int>> parse_range(std::string_view entry) {
    const auto dash = entry.find('-');
    const auto first = parse_number<int>(entry.substr(0, dash));
    const auto last = dash == entry.npos ? first : parse_number<int>(entry.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first) return std::nullopt;
    return std::pair(*first, *last);
}

std::optional<StreamCode> stream_code(std::string_view text) {
    if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
    return static_cast<StreamCode>(text[0] - '0');
}

template <auto Member>
Result<void> set_etcd_text(RdzvConf& conf, std::string_view text) {
    conf.etcd.*Member = std::string(text);
    return {};
}

Result<void> set_protocol(RdzvConf& conf, std::string_view text) {
    const auto protocol = parse_choice(text, {"http", "https"});
    if (!protocol) return protocol.error();
    conf.etcd.tls = *protocol == "https";
    return {};
}

Result<void> set_keep_alive_attempts(RdzvConf& conf, std::string_view text) {
    const auto attempts = parse_integer(text, 1, 1000);
    if (!attempts) return attempts.error();
    conf.keep_alive_attempts = *attempts;
    return {};
}

struct ConfKey {
    std::string_view name;
    ConfSetter set;  ///< null: accepted, without effect
    bool for_etcd = false;
};

constexpr std::array kConfKeys{
    ConfKey{"join_timeout", set_seconds<&RdzvConf::join_timeout>},
    ConfKey{"timeout", set_seconds<&RdzvConf::join_timeout>},  // torchrun's static rendezvous calls it so
    ConfKey{"last_call_timeout", set_seconds<&RdzvConf::last_call_timeout>},
    ConfKey{"read_timeout", set_seconds<&RdzvConf::read_timeout>},
    ConfKey{"is_host", set_is_host},
    ConfKey{"rank", set_node_rank},
    ConfKey{"store_type", set_store_type},
    ConfKey{"protocol", set_protocol, true},
    ConfKey{"cacert", set_etcd_text<&EtcdConf::ca_file>, true},
    ConfKey{"ca_cert", set_etcd_text<&EtcdConf::ca_file>, true},  // torchrun's etcd-v2 has other names for three keys
    ConfKey{"cert", set_etcd_text<&EtcdConf::cert_file>, true},
    ConfKey{"ssl_cert", set_etcd_text<&EtcdConf::cert_file>, true},
    ConfKey{"key", set_etcd_text<&EtcdConf::key_file>, true},
    ConfKey{"ssl_cert_key", set_etcd_text<&EtcdConf::key_file>, true},
    ConfKey{"etcd_prefix", set_etcd_text<&EtcdConf::prefix>, true},
    ConfKey{"username", set_etcd_text<&EtcdConf::user>, true},
    ConfKey{"password_file", set_etcd_text<&EtcdConf::password_file>, true},
    ConfKey{"keep_alive_interval", set_seconds<&RdzvConf::keep_alive_interval>},
    ConfKey{"keep_alive_max_attempt", set_keep_alive_attempts},
    ConfKey{"close_timeout", nullptr},
    ConfKey{"heartbeat_timeout", nullptr},
};

Result<void> set_conf(RdzvConf& conf, std::string_view name, std::string_view value) {
    const auto key = std::ranges::find(kConfKeys, name, &ConfKey::name);
    if (key == kConfKeys.end()) {
        std::vector<std::string_view> names;
        for (const ConfKey& known : kConfKeys) names.push_back(known.name);
        return usage(fmt::format("unknown key '{}'.{} Known keys: {}.", name, did_you_mean(name, names),
                                 fmt::join(names, ", ")));
    }
    if (key->set == nullptr) {
        if (!conf.without_effect.empty()) conf.without_effect += ", ";
        conf.without_effect += name;
        return {};
    }
    if (key->for_etcd) conf.etcd.a_key = name;
    const Result<void> set = key->set(conf, value);
    if (!set) return with_context(fmt::format("{}={}", name, value), set.error());
    return {};
}

struct BindingName {
    std::string_view name;
    NumaBinding binding;
};

constexpr std::array kBindingNames{BindingName{"node", NumaBinding::kNode}, BindingName{"socket", NumaBinding::kSocket},
                                   BindingName{"exclusive", NumaBinding::kExclusive},
                                   BindingName{"core-complex", NumaBinding::kCoreComplex}};

/// Appends the names that one entry of --gpus stands for. Returns false if it is not an entry.
bool append_gpus(std::vector<std::string>& names, std::string_view entry) {
    for (const std::string_view prefix : {"GPU-", "MIG-"}) {
        if (!entry.starts_with(prefix)) continue;
        names.emplace_back(entry);
        return entry.size() > prefix.size();
    }
    const auto range = parse_range(entry);
    if (!range || range->second >= kMaxSlots) return false;
    for (int index = range->first; index <= range->second; ++index) names.push_back(std::to_string(index));
    return true;
}

}  // namespace

std::string to_string(NumaBinding binding) {
    return std::string(std::ranges::find(kBindingNames, binding, &BindingName::binding)->name);
}

Result<NumaBinding> parse_numa_binding(std::string_view text) {
    const auto* const known = std::ranges::find(kBindingNames, text, &BindingName::name);
    if (known != kBindingNames.end()) return known->binding;
    return usage("not one of node, socket, exclusive, core-complex.");
}

Result<std::vector<std::string>> parse_gpus(std::string_view text) {
    std::vector<std::string> names;
    if (text == "auto") return names;
    for (const std::string_view entry : entries_of(text)) {
        if (!append_gpus(names, entry)) {
            return usage(
                fmt::format("'{}' is not a GPU. Write numbers and ranges as in 0,2,4-7, the UUIDs of `nvidia-smi -L` "
                            "(GPU-..., MIG-...), or auto.",
                            entry));
        }
    }
    return names;
}

Result<int> parse_integer(std::string_view text, int min, int max) {
    const auto value = parse_number<int>(text);
    if (!value || *value < min || *value > max) {
        return usage(fmt::format("not a whole number from {} to {}.", min, max));
    }
    return *value;
}

Result<NodeRange> parse_nodes(std::string_view text) {
    constexpr std::string_view kForm = "Write N or MIN:MAX with 1 <= MIN <= MAX.";
    const auto colon = text.find(':');
    const auto min = parse_number<int>(text.substr(0, colon));
    const auto max = colon == std::string_view::npos ? min : parse_number<int>(text.substr(colon + 1));
    if (!min || !max) return usage(fmt::format("not a number of nodes. {}", kForm));
    if (*min < 1) return usage(fmt::format("a job needs at least one node. {}", kForm));
    if (*min > *max) return usage(fmt::format("MIN is larger than MAX. {}", kForm));
    if (*max > kMaxNodes) return usage(fmt::format("a job has at most {} nodes. {}", kMaxNodes, kForm));
    return NodeRange{*min, *max};
}

Result<Slots> parse_slots(std::string_view text) {
    if (text == "cpu") return Slots{Slots::Kind::kCpu, 0};
    if (text == "gpu") return Slots{Slots::Kind::kGpu, 0};
    if (text == "xpu") return Slots{Slots::Kind::kXpu, 0};
    if (text == "auto") return Slots{Slots::Kind::kAuto, 0};
    const auto count = parse_number<int>(text);
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
    if (digits && (!count || *count > kMaxSlots))
        return usage(fmt::format("a node has at most {} workers. Run the others on more nodes (--nnodes).", kMaxSlots));
    if (!count || *count < 1) {
        return usage(
            fmt::format("not a number of workers. Write a number from 1 to {}, cpu, gpu, xpu or auto.", kMaxSlots));
    }
    return Slots{Slots::Kind::kCount, *count};
}

Result<StreamCodes> parse_stream_codes(std::string_view text) {
    constexpr std::string_view kForm =
        "Write 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or one of these for each local rank: 0:3,1:1.";
    if (text.find(':') == std::string_view::npos) {
        const auto code = stream_code(text);
        if (!code) return usage(fmt::format("not a choice of streams. {}", kForm));
        return StreamCodes{*code};
    }
    StreamCodes codes;
    for (const std::string_view entry : entries_of(text)) {
        const auto colon = std::min(entry.find(':'), entry.size());
        const std::string_view rank_text = entry.substr(0, colon);
        const std::string_view code_text = entry.substr(std::min(colon + 1, entry.size()));
        const auto rank = parse_number<int>(rank_text);
        const auto code = stream_code(code_text);
        if (!rank || *rank < 0) return usage(fmt::format("'{}' is not a local rank. {}", rank_text, kForm));
        if (!code) return usage(fmt::format("'{}' is not a choice of streams. {}", code_text, kForm));
        if (!codes.by_rank.emplace(*rank, *code).second)
            return usage(fmt::format("local rank {} occurs twice. Write one entry for each rank.", *rank));
    }
    return codes;
}

Result<RankRanges> parse_rank_ranges(std::string_view text) {
    RankRanges ranges;
    if (text.empty()) return ranges;
    for (const std::string_view entry : entries_of(text)) {
        const auto range = parse_range(entry);
        if (!range) {
            return usage(fmt::format(
                "'{}' is neither a rank nor a range of ranks. Write whole numbers from 0 up, for example 0 or 0,8-15.",
                entry));
        }
        ranges.push_back({range->first, range->second});
    }
    return ranges;
}

Result<std::vector<int>> parse_local_ranks(std::string_view text) {
    std::vector<int> ranks;
    if (text.empty()) return ranks;
    for (const std::string_view entry : entries_of(text)) {
        const auto rank = parse_number<int>(entry);
        if (!rank || *rank < 0 || *rank >= kMaxSlots) {
            return usage(
                fmt::format("'{}' is not a local rank. Write whole numbers from 0 up, for example 0 or 0,2,3.", entry));
        }
        ranks.push_back(*rank);
    }
    return ranks;
}

std::vector<std::string> parse_filters(std::string_view text) {
    std::vector<std::string> filters(1);
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != ',') {
            filters.back() += text[i];
        } else if (text.substr(i + 1).starts_with(',')) {
            filters.back() += ',';
            ++i;
        } else {
            filters.emplace_back();
        }
    }
    std::erase(filters, "");
    return filters;
}

Result<std::vector<int>> parse_signals(std::string_view text) {
    struct Name {
        std::string_view name;
        int signal;
    };
    constexpr std::array kNames{Name{"SIGTERM", SIGTERM}, Name{"SIGINT", SIGINT},   Name{"SIGHUP", SIGHUP},
                                Name{"SIGQUIT", SIGQUIT}, Name{"SIGUSR1", SIGUSR1}, Name{"SIGUSR2", SIGUSR2}};
    std::vector<int> signals;
    if (text.empty()) return signals;
    for (const std::string_view entry : entries_of(text)) {
        const auto* const known = std::ranges::find_if(
            kNames, [&](const Name& name) { return name.name == entry || name.name.substr(3) == entry; });
        if (known == kNames.end()) {
            return usage(
                fmt::format("'{}' is not a signal that can end a job. Choose from SIGTERM, SIGINT, SIGHUP, SIGQUIT, "
                            "SIGUSR1 and SIGUSR2, separated by commas.",
                            entry));
        }
        signals.push_back(known->signal);
    }
    return signals;
}

Result<RdzvConf> parse_rdzv_conf(std::string_view text) {
    RdzvConf conf;
    for (text = trimmed(text); !text.empty();) {
        const std::string_view entry = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), entry.size() + 1));
        const auto equals = entry.find('=');
        const std::string_view key = trimmed(entry.substr(0, equals));
        const std::string_view value = equals == entry.npos ? entry.substr(0, 0) : trimmed(entry.substr(equals + 1));
        if (key.empty() || value.empty())
            return usage(fmt::format("'{}' is not KEY=VALUE. Write KEY=VALUE,KEY=VALUE,...", trimmed(entry)));
        const Result<void> set = set_conf(conf, key, value);
        if (!set) return set.error();
    }
    return conf;
}

Result<std::vector<Endpoint>> parse_etcd_servers(std::string_view text) {
    std::vector<Endpoint> servers;
    for (const std::string_view entry : entries_of(text)) {
        if (entry.find("://") != std::string_view::npos) {
            return usage(
                fmt::format("'{}' is a URL. Write HOST:PORT, and --rdzv-conf protocol=https if etcd uses TLS.", entry));
        }
        auto server = parse_endpoint(entry, kDefaultEtcdPort);
        if (!server) return entry == text ? server.error() : with_context(fmt::format("'{}'", entry), server.error());
        if (server->port == 0) return usage(fmt::format("'{}': etcd cannot listen on port 0.", entry));
        servers.push_back(std::move(*server));
    }
    return servers;
}

Result<LocalNode> parse_local_node(std::string_view text) {
    const auto at = text.find('@');
    const std::string_view numbers = text.substr(0, at);
    std::array<std::optional<int>, 3> values{std::nullopt, -1, -1};
    std::size_t begin = 0;
    for (auto& value : values) {
        if (begin > numbers.size()) break;
        const auto comma = std::min(numbers.find(',', begin), numbers.size());
        value = parse_number<int>(numbers.substr(begin, comma - begin));
        begin = comma + 1;
    }
    if (!values[0] || !values[1] || !values[2] || begin <= numbers.size() || at == std::string_view::npos)
        return usage("not INDEX[,FD[,FD]]@HOST:PORT.");
    auto endpoint = parse_endpoint(text.substr(at + 1), 0);
    if (!endpoint) return endpoint.error();
    return LocalNode{*values[0], std::move(*endpoint), *values[1], *values[2]};
}

std::string to_string(const LocalNode& node) {
    std::string fds;
    if (node.open_lines_fd >= 0)
        fds = fmt::format(",{},{}", node.final_report_fd, node.open_lines_fd);
    else if (node.final_report_fd >= 0)
        fds = fmt::format(",{}", node.final_report_fd);
    return fmt::format("{}{}@{}", node.index, fds, to_string(node.endpoint));
}

Result<std::uint64_t> parse_size(std::string_view text) {
    constexpr std::string_view kUnits = "KMG";
    constexpr std::uint64_t kKibi = 1024;
    constexpr std::uint64_t kMax = std::uint64_t{1} << 50;  // no disk is larger, and no product overflows
    std::string_view digits = text;
    std::uint64_t unit_bytes = 1;
    if (const auto unit = text.empty() ? std::string_view::npos : kUnits.find(text.back()); unit != kUnits.npos) {
        digits.remove_suffix(1);
        for (std::size_t i = 0; i <= unit; ++i) unit_bytes *= kKibi;
    }
    const auto count = parse_number<std::uint64_t>(digits);
    if (!count) return usage("not a size. Write a number of bytes, or of KiB, MiB or GiB as in 64K, 100M, 2G.");
    if (*count > kMax / unit_bytes) return usage("too large. Write at most 1048576G.");
    if (*count * unit_bytes < kKibi) return usage("too small. Write at least 1K.");
    return *count * unit_bytes;
}

Result<std::chrono::milliseconds> parse_seconds(std::string_view text, bool zero_allowed) {
    const auto seconds = parse_number<double>(text);
    if (!seconds || !std::isfinite(*seconds) || *seconds < 0)
        return usage("not a number of seconds. Write for example 30 or 0.5.");
    if (*seconds > kMaxSeconds) return usage(fmt::format("longer than {:.0f} seconds, a year.", kMaxSeconds));
    const std::chrono::milliseconds value(std::llround(*seconds * 1000));
    if (value.count() == 0 && !zero_allowed) return usage("must be longer than 0 seconds.");
    return value;
}

Result<bool> parse_bool(std::string_view text) {
    const std::string lower = lower_case(std::string(text));
    constexpr std::array<std::string_view, 6> kYes{"1", "true", "t", "yes", "y", "on"};
    constexpr std::array<std::string_view, 6> kNo{"0", "false", "f", "no", "n", "off"};
    if (std::ranges::find(kYes, lower) != kYes.end()) return true;
    if (std::ranges::find(kNo, lower) != kNo.end()) return false;
    return usage("neither yes nor no. Write 1/0, true/false, yes/no or on/off.");
}

Result<std::string> parse_name(std::string_view text) {
    if (const std::string problem = check_run_id(text); !problem.empty()) return usage(problem + ".");
    return std::string(text);
}

Result<std::string> parse_choice(std::string_view text, std::initializer_list<std::string_view> allowed) {
    if (std::ranges::find(allowed, text) != allowed.end()) return std::string(text);
    const std::string near = did_you_mean(text, std::span<const std::string_view>(allowed.begin(), allowed.size()));
    return usage(
        fmt::format("not one of {}.{}", fmt::join(allowed, ", "), near.empty() ? " Write one of these." : near));
}

}  // namespace ddprun::launcher
