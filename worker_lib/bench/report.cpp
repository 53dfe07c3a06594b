#include "worker_lib/bench/report.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace ddp::bench {
namespace {

constexpr int kJsonVersion = 1;

/// Returns a number as nccl-tests prints it: small ones with more digits.
std::string number(double value) {
    const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
    return fmt::format("{:.{}f}", value, decimals);
}

std::string cells(const Row& row, const std::optional<Measured>& measured) {
    if (!measured) return fmt::format("{:>9} {:>7} {:>7} {:>6}", "-", "-", "-", "-");
    const bool carries = row.bytes > 0;  // else it has a time, but no bandwidth
    return fmt::format("{:>9} {:>7} {:>7} {:>6}", number(measured->us.mean),
                       carries ? number(algorithm_bandwidth(row, *measured)) : "-",
                       carries ? number(bus_bandwidth(row, *measured)) : "-",
                       measured->checked ? fmt::format("{}", measured->wrong) : "N/A");
}

std::string redop_of(const Call& call) { return reduces(call.collective) ? std::string(to_string(call.op)) : "none"; }
int root_of(const Call& call) { return has_root(call.collective) ? call.root : -1; }

boost::json::value number_or_null(const std::optional<double>& value) {
    return value ? boost::json::value(*value) : boost::json::value();
}

boost::json::value json_of(const Row& row, const std::optional<Measured>& measured) {
    if (!measured) return nullptr;
    boost::json::object fields{{"mean_us", measured->us.mean},
                               {"median_us", number_or_null(measured->us.median)},
                               {"p99_us", number_or_null(measured->us.p99)},
                               {"algbw_gb_s", nullptr},
                               {"busbw_gb_s", nullptr},
                               {"wrong", nullptr}};
    if (row.bytes > 0) {
        fields["algbw_gb_s"] = algorithm_bandwidth(row, *measured);
        fields["busbw_gb_s"] = bus_bandwidth(row, *measured);
    }
    if (measured->checked) fields["wrong"] = measured->wrong;
    return fields;
}

boost::json::value text_or_null(const std::string& text) {
    return text.empty() ? boost::json::value() : boost::json::value(text);
}

template <typename Use>
void for_each(const std::vector<Row>& rows, Use use) {
    for (const Row& row : rows) {
        for (const auto& measured : {row.out_of_place, row.in_place}) {
            if (measured) use(row, *measured);
        }
    }
}

}  // namespace

double algorithm_bandwidth(const Row& row, const Measured& measured) {
    return measured.us.mean > 0 ? static_cast<double>(row.bytes) / measured.us.mean / 1e3 : 0;
}

double bus_bandwidth(const Row& row, const Measured& measured) {
    return algorithm_bandwidth(row, measured) * bus_factor(row.call.collective, row.call.ranks);
}

std::string table_head(Collective collective, const std::string& about) {
    const std::string group = fmt::format("{:>9} {:>7} {:>7} {:>6}", "mean", "algbw", "busbw", "#wrong");
    const std::string units = fmt::format("{:>9} {:>7} {:>7} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
    std::string text = fmt::format("# {}: {}\n", name_of(collective), about);
    text += fmt::format("# {:>40}  {:^32}  {:^32}\n", "", "out-of-place", "in-place");
    text += fmt::format("# {:>10} {:>12} {:>5} {:>5} {:>4}  {}  {}\n", "size", "count", "type", "redop", "root", group,
                        group);
    text += fmt::format("# {:>10} {:>12} {:>5} {:>5} {:>4}  {}  {}\n", "(B)", "(elements)", "", "", "", units, units);
    return text;
}

std::string table_row(const Row& row) {
    return fmt::format("  {:>10} {:>12} {:>5} {:>5} {:>4}  {}  {}\n", row.bytes, row.call.count,
                       to_string(row.call.dtype), redop_of(row.call), root_of(row.call), cells(row, row.out_of_place),
                       cells(row, row.in_place));
}

std::size_t wrong_values(const std::vector<Row>& rows) {
    std::size_t wrong = 0;
    for_each(rows, [&](const Row&, const Measured& measured) { wrong += measured.wrong; });
    return wrong;
}

std::string table_foot(const std::vector<Row>& rows) {
    double sum = 0;
    std::size_t count = 0;
    bool checked = false;
    for_each(rows, [&](const Row& row, const Measured& measured) {
        checked = checked || measured.checked;
        if (row.bytes == 0) return;  // it has no bandwidth
        sum += bus_bandwidth(row, measured);
        ++count;
    });
    std::string text =
        fmt::format("# wrong values: {}", checked ? fmt::format("{}", wrong_values(rows)) : "not checked");
    if (count > 0) text += fmt::format("; mean bus bandwidth: {} GB/s", number(sum / static_cast<double>(count)));
    return text + "\n";
}

std::string to_json(const std::vector<Row>& rows, const std::string& about, int ranks, const std::string& error) {
    boost::json::array list;
    for (const Row& row : rows) {
        list.push_back({{"collective", name_of(row.call.collective)},
                        {"bytes", row.bytes},
                        {"count", row.call.count},
                        {"type", to_string(row.call.dtype)},
                        {"redop", redop_of(row.call)},
                        {"root", root_of(row.call)},
                        {"out_of_place", json_of(row, row.out_of_place)},
                        {"in_place", json_of(row, row.in_place)}});
    }
    return boost::json::serialize(boost::json::object{{"version", kJsonVersion},
                                                      {"about", about},
                                                      {"ranks", ranks},
                                                      {"error", text_or_null(error)},
                                                      {"rows", std::move(list)}}) +
           "\n";
}

}  // namespace ddp::bench
