#pragma once
// A flag of a training run: one entry says its name, help, who takes it and how its value is read and written. The
// compiler's command line and the device programs read the same entries (wire/run_options.h).

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::wire {

struct RunOptions;

/// Who takes a flag; device programs take every one.
enum class FlagUser : uint8_t {
  kProgram,       // only device programs: launchers set it
  kRun,           // also `graphpipe run`
  kRunAndVerify,  // also `graphpipe run` and `graphpipe verify`
};

struct RunFlag {
  const char* name;
  /// Empty: a switch.
  const char* value_name;
  const char* help;
  FlagUser user = FlagUser::kProgram;
  /// The value is a path, which another process may read from another folder.
  bool is_path = false;
  /// The value says which samples a step takes, what they are, or which steps make an update: a run that resumes must
  /// have the same.
  bool kept_on_resume = false;
  /// May be given several times: each adds to the value, which is written as one line for each.
  bool repeats = false;
  /// False: the word is not such a value, and the options are as before.
  std::function<bool(const std::string& word, RunOptions& options)> read;
  /// The word that reads back into the same value.
  std::function<std::string(const RunOptions& options)> write;

  /// What the flag means where it is absent, where `help` does not say it itself; of a flag that users take.
  std::string default_word() const;
  /// "X, a number, 0 or more", "N, a whole number, 1 or more": the value's name, and where it is one number by itself
  /// which ones are taken, for messages about one that is not.
  std::string value_words() const;
  bool is_switch() const { return *value_name == '\0'; }
};

inline RunFlag kept(RunFlag entry) {
  entry.kept_on_resume = true;
  return entry;
}

/// The whole word as a number; numbers are finite and not negative.
bool read_value(const std::string& word, std::string& value);
bool read_value(const std::string& word, int64_t& value);
bool read_value(const std::string& word, uint64_t& value);
bool read_value(const std::string& word, int& value);
bool read_value(const std::string& word, double& value);
bool read_value(const std::string& word, bool& value);
/// Numbers separated by commas.
bool read_value(const std::string& word, std::vector<int>& values);
template <typename Number>
bool read_value(const std::string& word, std::optional<Number>& value) {
  Number number{};
  if (!read_value(word, number)) return false;
  value = number;
  return true;
}

std::string write_value(const std::string& value);
std::string write_value(int64_t value);
std::string write_value(uint64_t value);
std::string write_value(int value);
std::string write_value(double value);
std::string write_value(bool value);
std::string write_value(const std::vector<int>& values);
template <typename Number>
std::string write_value(const std::optional<Number>& value) {
  return value ? write_value(*value) : std::string();
}

/// The flag of one member of one group: value_flag<&RunOptions::data, &DataOptions::steps>(...).
template <auto Group, auto Member>
RunFlag value_flag(const char* name, const char* value_name, const char* help, FlagUser user, bool is_path = false) {
  return {.name = name,
          .value_name = value_name,
          .help = help,
          .user = user,
          .is_path = is_path,
          .read = [](const std::string& word, auto& options) { return read_value(word, (options.*Group).*Member); },
          .write = [](const auto& options) { return write_value((options.*Group).*Member); }};
}

/// A word of a list; `help` shows the list.
template <auto Group, auto Member, size_t N>
RunFlag choice_flag(const char* name, const char* value_name, const char* help, FlagUser user,
                    const std::array<std::string_view, N>& words) {
  RunFlag entry = value_flag<Group, Member>(name, value_name, help, user);
  entry.read = [words](const std::string& word, auto& options) {
    if (std::ranges::find(words, word) == words.end()) return false;
    (options.*Group).*Member = word;
    return true;
  };
  return entry;
}

}  // namespace graphpipe::wire
