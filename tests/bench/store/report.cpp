#include "tests/bench/store/report.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "tests/bench/store/samples.hpp"

namespace ddprun::bench {
namespace {

constexpr const char* kOurs = "ours";

std::string grouped(double value, int decimals) {
    if (std::isnan(value)) return "-";
    std::string text = fmt::format("{:.{}f}", value, decimals);
    const std::size_t point = std::min(text.find('.'), text.size());
    for (std::size_t i = point; i > 3 && text[i - 4] != '-';) text.insert(i -= 3, ",");
    return text;
}

std::string ratio_text(double ratio) { return !std::isfinite(ratio) ? "-" : fmt::format("{:.2f}", ratio); }

std::size_t ratio_width(const std::string& server) { return std::max<std::size_t>(10, server.size() + 3); }

std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return "unknown processor";
}

}  // namespace

double Results::value(const std::string& server, std::size_t metric) const {
    std::vector<double> samples;
    const auto found = series.find(server);
    if (found == series.end()) return kNoValue;
    for (const auto& round : found->second.rounds) samples.push_back(round[metric]);
    return median(std::move(samples));
}

double Results::ratio(const std::string& server, const std::string& reference, std::size_t metric) const {
    const auto a = series.find(server), b = series.find(reference);
    if (a == series.end() || b == series.end()) return kNoValue;
    std::vector<double> ratios;
    const std::size_t rounds = std::min(a->second.rounds.size(), b->second.rounds.size());
    for (std::size_t i = 0; i < rounds; ++i) {
        ratios.push_back(a->second.rounds[i][metric] / b->second.rounds[i][metric]);
    }
    return median(std::move(ratios));
}

std::string verdict(const Goal& goal, const Results& results, std::size_t metric) {
    const bool least = goal.kind == Goal::Kind::kAtLeast;
    const double value =
        goal.reference.empty() ? results.value(kOurs, metric) : results.ratio(kOurs, goal.reference, metric);
    std::string text = fmt::format("{} {}", least ? ">=" : "<=", grouped(goal.bound, goal.bound < 100 ? 2 : 0));
    if (!goal.reference.empty()) text += " x " + goal.reference;
    if (std::isnan(value)) return text + ": not measured";
    const bool met = least ? value >= goal.bound : value <= goal.bound;
    return text + (met ? ": met" : ": NOT MET");
}

void print_machine(const std::vector<std::string>& server_lines) {
    utsname kernel{};
    ::uname(&kernel);
    double load = 0;
    if (::getloadavg(&load, 1) != 1) load = kNoValue;
    fmt::print("{} ({} cores), {} {}, load {:.1f}\n", processor(), ::sysconf(_SC_NPROCESSORS_ONLN), kernel.sysname,
               kernel.release, load);
#ifndef NDEBUG
    fmt::print("built with assertions: not what users run; use the preset 'release'\n");
#endif
    for (const std::string& line : server_lines) fmt::print("{}\n", line);
    std::fflush(stdout);
}

void print_table(const Workload& workload, const Results& results) {
    std::string header = fmt::format("\n{}: {}\n{:<26}", workload.name, workload.title, "");
    for (const std::string& server : results.servers) header += fmt::format("{:>12}", server);
    for (const std::string& server : results.servers) {
        if (server != kOurs) header += fmt::format("{:>{}}", "/" + server, ratio_width(server));
    }
    fmt::print("{}   goal\n", header);
    for (std::size_t metric = 0; metric < workload.metrics.size(); ++metric) {
        const Metric& what = workload.metrics[metric];
        std::string line = fmt::format("  {:<24}", what.name);
        for (const std::string& server : results.servers) {
            line += fmt::format("{:>12}", grouped(results.value(server, metric), what.decimals));
        }
        for (const std::string& server : results.servers) {
            if (server != kOurs)
                line += fmt::format("{:>{}}", ratio_text(results.ratio(kOurs, server, metric)), ratio_width(server));
        }
        std::string goals;
        for (const Goal& goal : what.goals) goals += (goals.empty() ? "   " : "; ") + verdict(goal, results, metric);
        fmt::print("{}{}\n", line, goals);
    }
    for (const auto& [server, series] : results.series) {
        if (!series.failure.empty()) fmt::print("  {}: {}\n", server, series.failure);
    }
    std::fflush(stdout);
}

}  // namespace ddprun::bench
