#include "wire/result_lines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "support/text.h"
#include "wire/version.h"

namespace graphpipe::wire {
namespace {

std::string json_value(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}
std::string json_value(int64_t value) { return std::to_string(value); }

std::string json_value(const Diagnostic& problem) {
  const auto field = [](std::string_view name, std::string_view value) {
    return text("\"", name, "\": ", JsonString::encode_text(value).str());
  };
  return text("{", field("code", code_name(problem.code)), ", ", field("severity", severity_name(problem.severity)),
              ", ", field("origin", problem.origin.raw()), ", ", field("message", problem.message), ", ",
              field("hint", problem.hint), "}");
}

template <typename T>
std::string list(const std::vector<T>& values) {
  std::string out = "[";
  for (const T& value : values) out += (out.size() > 1 ? ", " : "") + json_value(value);
  return out + "]";
}

template <typename Use>
std::string list(const std::vector<Use>& uses, int64_t Use::*member) {
  std::vector<int64_t> values;
  for (const Use& use : uses) values.push_back(use.*member);
  return list(values);
}

std::string arena_fields(const std::vector<ArenaUse>& arenas) {
  if (arenas.empty()) return "";
  return ", \"arena_bytes\": " + list(arenas, &ArenaUse::bytes) +
         ", \"planned_arena_bytes\": " + list(arenas, &ArenaUse::planned_bytes) +
         ", \"arena_steps\": " + list(arenas, &ArenaUse::steps) +
         ", \"fallback_steps\": " + list(arenas, &ArenaUse::fallback_steps) +
         ", \"fallbacks\": " + list(arenas, &ArenaUse::fallbacks) +
         ", \"page_faults\": " + list(arenas, &ArenaUse::page_faults);
}

std::string graph_fields(const std::vector<GraphUse>& graphs) {
  if (graphs.empty()) return "";
  return ", \"stage_calls\": " + list(graphs, &GraphUse::calls) +
         ", \"graph_calls\": " + list(graphs, &GraphUse::graphs);
}

std::string staleness_fields(const std::optional<Staleness>& staleness) {
  if (!staleness) return "";
  return ", \"updates\": " + json_value(staleness->updates) + ", \"staleness_bound\": " + json_value(staleness->bound) +
         ", \"largest_staleness\": " + json_value(staleness->largest) +
         ", \"mean_staleness\": " + json_value(staleness->mean);
}

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string mebibyte_words(const char* before, int64_t bytes) {
  char words[80];
  std::snprintf(words, sizeof words, "%s%.2f MiB", before, mebibytes(bytes));
  return words;
}

std::string arena_words(const ArenaUse& arena) {
  char words[200];
  std::snprintf(words, sizeof words,
                "%lld of %lld steps allocated outside of it, the last %lld times, with %lld page faults",
                static_cast<long long>(arena.fallback_steps), static_cast<long long>(arena.steps),
                static_cast<long long>(arena.fallbacks), static_cast<long long>(arena.page_faults));
  const std::string planned = arena.planned_bytes == 0 ? ""
                              : arena.planned_bytes == arena.bytes
                                  ? " as planned"
                                  : mebibyte_words(" (planned ", arena.planned_bytes) + ")";
  return mebibyte_words(", arena ", arena.bytes) + planned + ": " + words;
}

std::string graph_words(const GraphUse& use) {
  return text(", ", use.graphs, " of ", use.calls, " stage calls of the last step in CUDA graphs");
}

constexpr std::string_view kStepWord = "step ";
constexpr size_t kRecentSteps = 20;

std::string words(const char* format, double value) {
  char buffer[60];
  // Processors give NaN either sign, which would print.
  std::snprintf(buffer, sizeof buffer, format, std::isnan(value) ? std::abs(value) : value);
  return buffer;
}

double recent_mean(const std::vector<double>& values) {
  const size_t count = std::min(values.size(), kRecentSteps);
  double sum = 0;
  for (size_t i = values.size() - count; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

std::string span_text(double seconds) {
  constexpr int64_t kMinute = 60, kHour = 3600, kLongest = int64_t{1} << 40;
  const auto whole = static_cast<int64_t>(std::ceil(std::min(seconds, static_cast<double>(kLongest))));
  if (whole < 2 * kMinute) return text(whole, " s");
  if (whole < 2 * kHour) return text(whole / kMinute, " min");
  return text(whole / kHour, " h ", whole % kHour / kMinute, " min");
}

}  // namespace

std::string to_json(const RunResult& result) {
  std::string out = "{\"schema\": \"graphpipe.run/1\", \"tool_version\": \"";
  out += kToolVersion;
  out += std::string("\", \"complete\": ") + (result.complete ? "true" : "false") + ", \"plan\": \"" + result.plan +
         "\", \"transport\": \"" + result.transport + "\"";
  out +=
      ", \"devices\": " + std::to_string(result.devices) + ", \"steps\": " + std::to_string(result.step_seconds.size());
  out += ", \"first_step\": " + json_value(result.first_step);
  out += ", \"losses\": " + list(result.losses) + ", \"step_seconds\": " + list(result.step_seconds);
  if (!result.gradient_norms.empty()) out += ", \"gradient_norms\": " + list(result.gradient_norms);
  if (!result.loss_scales.empty()) out += ", \"loss_scales\": " + list(result.loss_scales);
  if (!result.skipped_steps.empty()) out += ", \"skipped_steps\": " + list(result.skipped_steps);
  if (!result.eval_steps.empty())
    out += ", \"eval_steps\": " + list(result.eval_steps) + ", \"eval_losses\": " + list(result.eval_losses);
  return out + ", \"peak_bytes\": " + list(result.peak_bytes) + arena_fields(result.arenas) +
         graph_fields(result.graphs) + staleness_fields(result.staleness) +
         ", \"diagnostics\": " + list(result.problems) + "}\n";
}

std::string step_line(const RunResult& result, int64_t steps) {
  const size_t done = result.step_seconds.size();
  const int64_t step = result.first_step + static_cast<int64_t>(done) - 1;
  std::string out = text(kStepWord, step, " of ", steps);
  if (done > 0 && result.losses.size() == done) out += words(" loss %.9g", result.losses.back());
  const double seconds = done > 0 ? result.step_seconds.back() : 0.0;
  out += words(" (%.3f s", seconds);
  if (result.step_samples > 0 && seconds > 0)
    out += words(", %.3g samples/s", static_cast<double>(result.step_samples) / seconds);
  if (!result.loss_scales.empty()) out += words(", loss scale %g", result.loss_scales.back());
  if (done > 0 && step < steps)
    out += ", " + span_text(recent_mean(result.step_seconds) * static_cast<double>(steps - step)) + " left";
  return out + ")";
}

bool is_step_line(std::string_view line) {
  return line.starts_with(kStepWord) && line.find(" of ") != std::string_view::npos;
}

std::string eval_line(const RunResult& result) {
  return text("evaluation after step ", result.eval_steps.back()) + words(": loss %.9g", result.eval_losses.back());
}

std::string peak_lines(const RunResult& result) {
  std::string out;
  char line[120];
  for (size_t device = 0; device < result.peak_bytes.size(); ++device) {
    std::snprintf(line, sizeof line, "device %zu peak %.2f MiB", device, mebibytes(result.peak_bytes[device]));
    out += line;
    if (device < result.arenas.size() && result.arenas[device].steps > 0) out += arena_words(result.arenas[device]);
    if (device < result.graphs.size() && result.graphs[device].calls > 0) out += graph_words(result.graphs[device]);
    out += "\n";
  }
  return out;
}

std::string staleness_line(const RunResult& result) {
  if (!result.staleness) return "";
  const Staleness& staleness = *result.staleness;
  return text("parameter server: ", staleness.updates, " updates, each ") + words("%.2f", staleness.mean) +
         text(" updates late on average and at most ", staleness.largest, " (allowed: ", staleness.bound, ")\n");
}

}  // namespace graphpipe::wire
