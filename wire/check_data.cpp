#include "wire/check_data.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "wire/data_file.h"
#include "wire/npy_header.h"
#include "wire/scan_numbers.h"

namespace graphpipe::wire {
namespace {

Diagnostic bad_data(const std::string& file, std::string message, std::string hint) {
  return {.code = Code::kBadData, .origin = ModelText(file), .message = std::move(message), .hint = std::move(hint)};
}

int64_t samples_of(const DataEntry& entry, const DataArray& array) { return array.dims[0] / entry.dims[0]; }

size_t elements_of_sample(const DataEntry& entry) {
  size_t count = 1;
  for (const int64_t dim : entry.dims) count *= static_cast<size_t>(dim);
  return count;
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// The entries whose arrays fit, with them.
using Arrays = std::vector<std::pair<const DataEntry*, DataArray>>;

Arrays open_all(const DataTable& table, const OpenArray& open, Diagnostics& problems) {
  Arrays arrays;
  const auto add = [&](const Diagnostics& more) { problems.insert(problems.end(), more.begin(), more.end()); };
  for (const DataEntry& entry : table.entries) {
    Result<DataArray> array = open(entry);
    if (!array) {
      add(array.problems());
    } else if (const Status fits = check_array(entry, *array); !fits) {
      add(fits.problems());
    } else {
      arrays.emplace_back(&entry, std::move(array).value());
    }
  }
  return arrays;
}

// Sample i of every file belongs together.
void check_counts(const Arrays& arrays, Diagnostics& problems) {
  std::string counts;
  const DataEntry* first = nullptr;
  int64_t count_of_first = 0;
  bool differ = false;
  for (const auto& [entry, array] : arrays) {
    if (!entry->has_samples()) continue;
    const int64_t count = samples_of(*entry, array);
    if (first == nullptr) count_of_first = count;
    if (first == nullptr) first = entry;
    differ = differ || count != count_of_first;
    counts += text(counts.empty() ? "" : ", ", quoted(ModelText(array.file)), " ", count);
  }
  if (differ)
    problems.push_back(bad_data("", "the files hold different numbers of samples: " + counts,
                                "write them again: row i of every file belongs to sample i"));
}

// Data whose end lies within a step; nobody who counts epochs expects that.
void note_wrap(const DataTable& table, const Arrays& arrays, int64_t steps, Diagnostics& notes) {
  for (const auto& [entry, array] : arrays) {
    if (!entry->has_samples()) continue;
    const int64_t count = samples_of(*entry, array);
    if (count % table.batch == 0 || (count + table.batch - 1) / table.batch > steps) return;
    Diagnostic note = bad_data("",
                               text("the data have ", count, " samples, which the batch of ", table.batch,
                                    " does not divide: a step that reaches their end goes on with their first samples"),
                               "");
    note.severity = Severity::kNote;
    notes.push_back(std::move(note));
    return;
  }
}

std::string bounds_text(const IdBounds& ids) {
  std::string out = text("from ", ids.low, " to ", ids.high - 1);
  if (ids.has_ignored) out += text(", or ", ids.ignored, " for what does not count");
  return out;
}

}  // namespace

Status check_array(const DataEntry& entry, const DataArray& array) {
  const size_t from = entry.has_samples() ? 1 : 0;
  const bool same_rest = array.dims.size() == entry.dims.size() &&
                         std::equal(entry.dims.begin() + static_cast<std::ptrdiff_t>(from), entry.dims.end(),
                                    array.dims.begin() + static_cast<std::ptrdiff_t>(from));
  const bool has_samples =
      !entry.has_samples() || (!array.dims.empty() && array.dims[0] > 0 && array.dims[0] % entry.dims[0] == 0);
  if (array.type == entry.type && same_rest && has_samples) return Ok{};
  std::string wanted = shape_text(entry.dims);
  if (entry.has_samples()) wanted += " with any number of samples in place of the first";
  return bad_data(array.file,
                  text("it holds ", element_name(array.type), shape_text(array.dims), "; the model takes ",
                       element_name(entry.type), wanted),
                  "write the file again with this type and shape");
}

std::string place_of(const DataArray& array, size_t element) {
  if (array.dims.empty()) return "the number";
  size_t of_row = 1;
  for (size_t axis = 1; axis < array.dims.size(); ++axis) of_row *= static_cast<size_t>(array.dims[axis]);
  std::string place = text("row ", element / of_row);
  if (array.dims.size() == 2) place += text(", column ", element % of_row);
  if (array.dims.size() > 2) place += ", element " + index_text(std::span(array.dims).subspan(1), element % of_row);
  return place + " (from 0)";
}

Status check_ids(const DataEntry& entry, const DataArray& array, int64_t first, int64_t samples) {
  if (!entry.ids.bounded() || kElementTypes[static_cast<size_t>(entry.type)].is_floating ||
      entry.type == ElementType::kBool)
    return Ok{};
  const auto bytes = static_cast<size_t>(element_size(entry.type));
  const size_t of_sample = entry.has_samples() ? elements_of_sample(entry) : array.elements.size() / bytes;
  const size_t skipped = entry.has_samples() ? static_cast<size_t>(first) * of_sample : 0;
  const size_t count = entry.has_samples() ? static_cast<size_t>(samples) * of_sample : of_sample;
  const auto found = first_out_of_bounds(entry.type, array.elements.subspan(skipped * bytes, count * bytes), entry.ids);
  if (!found) return Ok{};
  const size_t element = skipped + *found;
  return bad_data(array.file,
                  text(place_of(array, element), " is ", integer_at(entry.type, array.elements, element),
                       "; the model takes ", bounds_text(entry.ids)),
                  "correct the file, or train a model with as many rows or classes as the data need");
}

Diagnostics check_data(const DataTable& table, const OpenArray& open, int64_t steps) {
  Diagnostics problems;
  const Arrays arrays = open_all(table, open, problems);
  check_counts(arrays, problems);
  for (const auto& [entry, array] : arrays) {
    int64_t samples = entry->has_samples() ? samples_of(*entry, array) : 1;
    if (steps < samples / table.batch) samples = steps * table.batch;
    const Status in_bounds = check_ids(*entry, array, 0, samples);
    if (!in_bounds) problems.insert(problems.end(), in_bounds.problems().begin(), in_bounds.problems().end());
  }
  if (problems.empty()) note_wrap(table, arrays, steps, problems);
  if (problems.size() > kMaxProblems) problems.resize(kMaxProblems);
  return problems;
}

Result<DataArray> NpyFolder::open(const DataEntry& entry) {
  const std::string name = data_file_name(entry.name), path = folder_ + "/" + name;
  auto found = files_.find(name);
  if (found == files_.end()) {
    if (!exists(path))
      return bad_data(name, "the data folder has no such file",
                      "write one .npy file per model input and label, first axis samples");
    GP_TRY(MappedFile file, MappedFile::open(path));
    found = files_.emplace(name, std::move(file)).first;
  }
  const std::span<const std::byte> bytes = found->second.bytes();
  GP_TRY(const NpyHeader header, read_npy_header(bytes, name));
  return DataArray{
      .type = header.type, .dims = header.dims, .elements = bytes.subspan(header.data_offset), .file = name};
}

Result<DataTable> read_data_table(const std::string& generated_folder) {
  const std::string path = text(generated_folder, "/", kDataTableFile);
  GP_TRY(const MappedFile file, MappedFile::open(path));
  const std::string_view words(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::optional<DataTable> table = parse_data_table(words);
  if (table) return *std::move(table);
  return Diagnostic{.code = Code::kMalformedFile,
                    .origin = ModelText(path),
                    .message = "it is not a table of data as this version writes it",
                    .hint = "generate the folder again"};
}

Diagnostics check_data_folder(const std::string& generated_folder, const std::string& folder, int64_t steps) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return {{.code = Code::kUnreadableFile,
             .origin = ModelText(folder),
             .message = "it is not a folder",
             .hint = "pass the folder of the data with --data"}};
  const Result<DataTable> table = read_data_table(generated_folder);
  if (!table) return table.problems();
  if (is_test_data_folder(folder)) return {};
  NpyFolder files(folder);
  return check_data(
      *table, [&](const DataEntry& entry) { return files.open(entry); }, steps);
}

bool is_test_data_folder(const std::string& folder) {
  return exists(folder + "/input_0.pb") || exists(folder + "/test_data_set_0/input_0.pb");
}

}  // namespace graphpipe::wire
