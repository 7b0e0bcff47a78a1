#include "wire/result_lines.h"

#include <cmath>
#include <cstdio>

#include "wire/version.h"

namespace graphpipe::wire {
namespace {

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}
std::string number(int64_t value) { return std::to_string(value); }

template <typename T>
std::string list(const std::vector<T>& values) {
  std::string out = "[";
  for (const T& value : values) out += (out.size() > 1 ? ", " : "") + number(value);
  return out + "]";
}

}  // namespace

std::string to_json(const RunResult& result) {
  std::string out = "{\"schema\": \"graphpipe.run/1\", \"tool_version\": \"";
  out += kToolVersion;
  out += std::string("\", \"complete\": ") + (result.complete ? "true" : "false") + ", \"plan\": \"" + result.plan + "\", \"transport\": \"" + result.transport + "\"";
  out +=
      ", \"devices\": " + std::to_string(result.devices) + ", \"steps\": " + std::to_string(result.step_seconds.size());
  out += ", \"first_step\": " + number(result.first_step);
  out += ", \"losses\": " + list(result.losses) + ", \"step_seconds\": " + list(result.step_seconds);
  if (!result.gradient_norms.empty()) out += ", \"gradient_norms\": " + list(result.gradient_norms);
  return out + ", \"peak_bytes\": " + list(result.peak_bytes) + ", \"diagnostics\": []}\n";
}

std::string step_line(const RunResult& result, int64_t steps) {
  const size_t done = result.step_seconds.size();
  const int64_t step = result.first_step + static_cast<int64_t>(done) - 1;
  std::string out = "step " + std::to_string(step) + " of " + std::to_string(steps);
  char words[40];
  if (done > 0 && result.losses.size() == done) {
    std::snprintf(words, sizeof words, " loss %.9g", result.losses.back());
    out += words;
  }
  std::snprintf(words, sizeof words, " (%.3f s)\n", done > 0 ? result.step_seconds.back() : 0.0);
  return out + words;
}

std::string peak_lines(const RunResult& result) {
  std::string out;
  char line[120];
  for (size_t device = 0; device < result.peak_bytes.size(); ++device) {
    std::snprintf(line, sizeof line, "device %zu peak %.2f MiB\n", device,
                  static_cast<double>(result.peak_bytes[device]) / (1 << 20));
    out += line;
  }
  return out;
}

}  // namespace graphpipe::wire
