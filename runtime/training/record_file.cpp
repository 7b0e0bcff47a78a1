#include "runtime/training/record_file.h"

#include <sys/stat.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <utility>

#include "runtime/error.h"
#include "runtime/io/output_file.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

std::string digits(double number) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

struct JsonCell {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(int64_t number) const { return std::to_string(number); }
  std::string operator()(double number) const { return std::isfinite(number) ? digits(number) : "null"; }
  std::string operator()(const std::string& words) const { return JsonString::encode_text(words).str(); }
};

struct CsvCell {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(int64_t number) const { return std::to_string(number); }
  std::string operator()(double number) const { return digits(number); }
  std::string operator()(const std::string& words) const {
    std::string out = "\"";
    for (const char c : words) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
  }
};

}  // namespace

RecordFile::RecordFile(std::string path, std::vector<std::string> columns, int64_t keep_until)
    : path_(std::move(path)), columns_(std::move(columns)) {
  struct stat status {};
  const bool goes_on =
      keep_until > 0 && stat(path_.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
  if (goes_on) {
    const GrowingFile no_other_writes(path_, GrowingFile::Begin::kAtEnd);
    drop_later_rows(keep_until);
  }
  file_.emplace(path_, goes_on ? GrowingFile::Begin::kAtEnd : GrowingFile::Begin::kAnew);
  if (!goes_on && is_csv()) file_->append(header());
}

std::string RecordFile::header() const {
  std::string out;
  for (const std::string& column : columns_) out += (out.empty() ? "" : ",") + column;
  return out + "\n";
}

std::string RecordFile::row(const std::vector<Cell>& cells) const {
  GP_CHECK(cells.size() == columns_.size());
  std::string out = is_csv() ? "" : "{";
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) out += is_csv() ? "," : ", ";
    if (is_csv()) out += std::visit(CsvCell{}, cells[i]);
    else out += JsonString::encode_text(columns_[i]).str() + ": " + std::visit(JsonCell{}, cells[i]);
  }
  return out + (is_csv() ? "\n" : "}\n");
}

std::optional<int64_t> RecordFile::step_of(std::string_view line) const {
  const std::string before = is_csv() ? "" : "{\"" + columns_.front() + "\": ";
  if (!line.starts_with(before)) return std::nullopt;
  line.remove_prefix(before.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  const bool whole = error == std::errc() && end != line.data() + line.size() && *end == ',';
  return whole ? std::optional(step) : std::nullopt;
}

void RecordFile::drop_later_rows(int64_t keep_until) const {
  std::ifstream old(path_, std::ios::binary);
  OutputFile kept(path_);
  std::string line;
  for (bool first = true; std::getline(old, line); first = false) {
    const bool is_header = first && is_csv() && line + "\n" == header();
    const std::optional<int64_t> step = is_header ? std::nullopt : step_of(line);
    // A run was killed while it wrote this row: ignore it.
    const bool is_torn = old.eof();
    if (!is_header && !step && !is_torn)
      fail(Code::kUsage, text(quoted(ModelText(path_)), " stands there and is no table that this run could go on with"),
           "name another file");
    if (!is_torn && (is_header || *step <= keep_until)) kept.write(line + "\n");
  }
  kept.keep();
}

void RecordFile::append(const std::vector<Cell>& cells) { file_->append(row(cells)); }

}  // namespace graphpipe::runtime
