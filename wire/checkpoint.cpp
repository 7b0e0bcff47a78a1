#include "wire/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "wire/run/watch.h"

namespace graphpipe::wire {
namespace {

constexpr std::string_view kVersionLine = "graphpipe-checkpoint 1";
constexpr std::string_view kStepPrefix = "step-";

template <typename Number>
bool read_whole(std::string_view word, Number& number) {
  const char* end = word.data() + word.size();
  const auto [stopped, error] = std::from_chars(word.data(), end, number);
  return error == std::errc() && stopped == end && std::to_string(number) == word;
}

// The front of the text up to the separator, which goes too.
std::string_view cut_front(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

bool read_flag(std::string_view value, CheckpointRecord& record) {
  // A flag without a value has its blank too: it stands in one way only, so that none stands twice.
  if (!value.starts_with("--") || value.find(' ') == value.npos) return false;
  const std::string name(cut_front(value, ' '));
  record.flags.emplace_back(name, value);
  return true;
}

bool read_file(std::string_view value, CheckpointRecord& record) {
  ManifestEntry entry;
  if (!parse_manifest_line(value, entry) || entry.path.find('/') != std::string::npos) return false;
  record.files.push_back(std::move(entry));
  return true;
}

bool read_digest(std::string_view value, std::string& digest) {
  digest = value;
  return is_digest(value);
}

bool read_losses(std::string_view value, std::vector<double>& losses) {
  while (!value.empty()) {
    const std::string_view word = cut_front(value, ' ');
    double loss = 0;
    const auto [stopped, error] = std::from_chars(word.data(), word.data() + word.size(), loss);
    if (error != std::errc() || stopped != word.data() + word.size() || !std::isfinite(loss)) return false;
    losses.push_back(loss);
  }
  return !losses.empty() && losses.size() <= static_cast<size_t>(kLossWindow);
}

// The shortest text that reads back to the same bits.
std::string losses_text(const std::vector<double>& losses) {
  std::string out;
  for (const double loss : losses) {
    std::array<char, 32> word{};
    const auto end = std::to_chars(word.data(), word.data() + word.size(), loss).ptr;
    out.append(" ").append(word.data(), end);
  }
  return out.empty() ? out : "losses" + out + "\n";
}

bool read_line(std::string_view key, std::string_view value, CheckpointRecord& record) {
  if (key == "model") return read_digest(value, record.model);
  if (key == "plan") return read_digest(value, record.plan);
  if (key == "data") return read_digest(value, record.data);
  if (key == "step") return read_whole(value, record.step) && record.step >= 0;
  if (key == "batch") return read_whole(value, record.batch) && record.batch > 0;
  if (key == "seed") return read_whole(value, record.seed);
  if (key == "flag") return read_flag(value, record);
  if (key == "losses") return read_losses(value, record.losses);
  if (key == "file") return read_file(value, record);
  record.optimizer = value;
  return key == "optimizer" && !value.empty();
}

}  // namespace

std::string checkpoint_name(int64_t step) { return std::string(kStepPrefix) + std::to_string(step); }

std::optional<int64_t> step_of_checkpoint(std::string_view name) {
  int64_t step = 0;
  if (!name.starts_with(kStepPrefix) || !read_whole(name.substr(kStepPrefix.size()), step) || step < 0)
    return std::nullopt;
  return step;
}

std::string print_checkpoint(const CheckpointRecord& record) {
  std::string out = std::string(kVersionLine) + "\nmodel " + record.model + "\nplan " + record.plan + "\noptimizer " +
                    record.optimizer + "\nstep " + std::to_string(record.step) +
                    (record.batch > 0 ? "\nbatch " + std::to_string(record.batch) : "") + "\nseed " +
                    std::to_string(record.seed) + "\ndata " + record.data + "\n";
  for (const auto& [name, value] : record.flags)
    out.append("flag ").append(name).append(" ").append(value).append("\n");
  out += losses_text(record.losses);
  for (const ManifestEntry& file : record.files) out += print_manifest_line(file);
  return out;
}

bool parse_checkpoint(std::string_view text, CheckpointRecord& record, std::string& problem) {
  record = {};
  if (cut_front(text, '\n') != kVersionLine) {
    problem = "the first line is not '" + std::string(kVersionLine) + "'";
    return false;
  }
  std::set<std::string, std::less<>> seen;
  for (int number = 2; !text.empty(); ++number) {
    const std::string_view whole = cut_front(text, '\n');
    std::string_view value = whole;
    const std::string_view key = cut_front(value, ' ');
    const bool is_read = read_line(key, value, record);
    // A flag may stand twice, with other values; a file may not, whatever is said of it.
    std::string once(key == "flag" ? whole : key);
    if (is_read && key == "file") once += " " + record.files.back().path;
    if (!is_read || !seen.insert(std::move(once)).second) {
      problem = "line " + std::to_string(number) + " is malformed";
      return false;
    }
  }
  for (const char* key : {"model", "plan", "optimizer", "step", "seed", "data"}) {
    if (seen.contains(std::string_view(key))) continue;
    problem = std::string("it names no ") + key;
    return false;
  }
  return true;
}

}  // namespace graphpipe::wire
