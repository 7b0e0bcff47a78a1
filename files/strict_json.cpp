#include "files/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>

namespace graphpipe::files {
namespace {

using Json = nlohmann::json;

class Scanner : public nlohmann::json_sax<Json> {
 public:
  Scanner(const JsonLimits& limits, const JsonCheck& check) : limits_(limits), check_(check) {}

  Diagnostics take_problems() { return std::move(problems_); }

  bool null() override { return see(JsonKind::kNull); }
  bool boolean(bool value) override { return see(JsonKind::kBool, value ? 1 : 0); }
  bool number_integer(number_integer_t number) override { return see(JsonKind::kInteger, static_cast<double>(number)); }
  bool number_unsigned(number_unsigned_t number) override {
    return see(JsonKind::kInteger, static_cast<double>(number));
  }
  bool number_float(number_float_t number, const string_t&) override { return see(JsonKind::kReal, number); }
  bool string(string_t& text) override { return see(JsonKind::kString, 0, text); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonKind::kObject); }
  bool start_array(std::size_t) override { return open(JsonKind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    path_.resize(levels_.size() - 1);
    path_.push_back(name);
    if (!level.names.insert(name).second) report("this field stands here twice");
    return problems_.size() < kMaxProblems;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    enter();
    // 406 is nlohmann's number for a number that no double can hold.
    if (error.id == 406) report("the number does not fit into 64 bits");
    else report(text("not JSON from byte ", position, " on (NaN and Infinity are not either)"));
    return false;
  }

 private:
  struct Level {
    bool is_array;
    size_t count = 0;
    std::set<std::string> names;
  };

  // Moves the path on to this value; keys have done so in objects.
  void enter() {
    if (levels_.empty() || !levels_.back().is_array) return;
    path_.resize(levels_.size() - 1);
    path_.push_back(text("[", levels_.back().count++, "]"));
  }

  bool see(JsonKind kind, double number = 0, std::string_view string = {}) {
    enter();
    if (check_) {
      const std::string problem = check_({path_, kind, number, string});
      if (!problem.empty()) report(problem);
    }
    return problems_.size() < kMaxProblems;
  }

  bool open(JsonKind kind) {
    if (!see(kind)) return false;
    if (static_cast<int>(levels_.size()) >= limits_.deepest) {
      report(text("nested deeper than ", limits_.deepest, " levels"), Code::kLimitExceeded);
      return false;
    }
    levels_.push_back({.is_array = kind == JsonKind::kArray});
    return true;
  }

  bool close() {
    levels_.pop_back();
    path_.resize(levels_.size());
    return true;
  }

  void report(std::string_view what, Code code = Code::kMalformedFile) {
    problems_.push_back({.code = code,
                         .origin = ModelText(),
                         .message = text(path_.empty() ? "the file" : path_text(path_), ": ", what),
                         .hint = "correct the field"});
  }

  const JsonLimits& limits_;
  const JsonCheck& check_;
  std::vector<Level> levels_;
  std::vector<std::string> path_;
  Diagnostics problems_;
};

}  // namespace

std::string path_text(const std::vector<std::string>& path) {
  std::string out;
  for (const std::string& part : path) {
    if (!part.starts_with('[') && !out.empty()) out += '.';
    out += Terminal::encode_text(part).str();
  }
  return out.size() > 200 ? text(out.substr(0, 197), "...") : out;
}

Status scan_json(std::string_view text_form, const JsonLimits& limits, const JsonCheck& check) {
  if (static_cast<int64_t>(text_form.size()) > limits.max_bytes)
    return Diagnostic{.code = Code::kLimitExceeded,
                      .message = text("the text is larger than ", limits.max_bytes, " bytes"),
                      .hint = "check that this is the file you meant"};
  Scanner scanner(limits, check);
  Json::sax_parse(text_form.begin(), text_form.end(), &scanner);
  Diagnostics problems = scanner.take_problems();
  if (!problems.empty()) return problems;
  return Ok{};
}

}  // namespace graphpipe::files
