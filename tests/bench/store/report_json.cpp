#include <fmt/format.h>
#include <boost/json.hpp>

#include <cmath>
#include <fstream>
#include <stdexcept>

#include "tests/bench/store/report.hpp"

namespace ddprun::bench {
namespace {

namespace json = boost::json;

/// JSON has no NaN.
json::value number(double value) { return std::isnan(value) ? json::value(nullptr) : json::value(value); }

json::object metric_object(const Metric& metric, std::size_t index, const Results& results) {
    json::object servers, ratios;
    for (const auto& [name, series] : results.series) {
        json::array rounds;
        for (const auto& round : series.rounds) rounds.push_back(number(round[index]));
        servers[name] = {{"median", number(results.value(name, index))}, {"rounds", std::move(rounds)}};
        if (name != "ours") ratios[name] = number(results.ratio("ours", name, index));
    }
    json::array goals;
    for (const Goal& goal : metric.goals) goals.emplace_back(verdict(goal, results, index));
    return {{"metric", metric.name},
            {"servers", std::move(servers)},
            {"ours_over", std::move(ratios)},
            {"goals", std::move(goals)}};
}

}  // namespace

void write_json(const std::string& path, const Report& report) {
    json::array workloads;
    for (const auto& [workload, results] : report.workloads) {
        json::array metrics;
        for (std::size_t i = 0; i < workload.metrics.size(); ++i) {
            metrics.push_back(metric_object(workload.metrics[i], i, results));
        }
        workloads.push_back({{"name", workload.name}, {"title", workload.title}, {"metrics", std::move(metrics)}});
    }
    const json::object document{{"servers", json::value_from(report.server_lines)},
                                {"workloads", std::move(workloads)}};
    std::ofstream file(path);
    file << json::serialize(document) << '\n';
    file.close();
    if (!file) throw std::runtime_error(fmt::format("cannot write {}", path));
}

}  // namespace ddprun::bench
