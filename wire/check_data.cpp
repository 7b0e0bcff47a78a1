#include "wire/check_data.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "support/mapped_file.h"
#include "wire/run_options.h"
#include "wire/scan_numbers.h"

namespace graphpipe::wire {
namespace {

Diagnostic bad_data(const std::string& file, std::string message, std::string hint) {
  return {.code = Code::kBadData, .origin = ModelText(file), .message = std::move(message), .hint = std::move(hint)};
}

using Parts = std::vector<DataArray>;

int64_t samples_of(const DataEntry& entry, const DataArray& part) { return part.dims[0] / entry.dims[0]; }
int64_t samples_of(const DataEntry& entry, const Parts& parts) {
  int64_t samples = 0;
  for (const DataArray& part : parts) samples += samples_of(entry, part);
  return samples;
}

size_t elements_of_sample(const DataEntry& entry, const DataArray& array) {
  auto count = static_cast<size_t>(entry.dims[0]);
  for (size_t axis = 1; axis < array.dims.size(); ++axis) count *= static_cast<size_t>(array.dims[axis]);
  return count;
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Result<Parts> open_fitting(const DataEntry& entry, const OpenData& open) {
  GP_TRY(Parts parts, open(entry));
  for (const DataArray& part : parts) GP_TRY_VOID(check_array(entry, part));
  return parts;
}

/// The entries whose arrays fit, with them.
using Arrays = std::vector<std::pair<const DataEntry*, Parts>>;

void add(Diagnostics& all, const Diagnostics& more) { all.insert(all.end(), more.begin(), more.end()); }

Arrays open_all(const DataTable& table, const OpenData& open, Diagnostics& problems) {
  Arrays arrays;
  for (const DataEntry& entry : table.entries) {
    Result<Parts> parts = open_fitting(entry, open);
    if (parts) arrays.emplace_back(&entry, std::move(parts).value());
    else add(problems, parts.problems());
  }
  return arrays;
}

// Sample i of every file belongs together.
void check_counts(const Arrays& arrays, Diagnostics& problems) {
  std::string counts;
  const DataEntry* first = nullptr;
  int64_t count_of_first = 0;
  bool differ = false;
  for (const auto& [entry, parts] : arrays) {
    if (!entry->has_samples()) continue;
    const int64_t count = samples_of(*entry, parts);
    if (first == nullptr) count_of_first = count;
    if (first == nullptr) first = entry;
    differ = differ || count != count_of_first;
    const std::string files = parts.size() > 1 ? text(" and ", parts.size() - 1, " more parts") : "";
    counts += text(counts.empty() ? "" : ", ", quoted(ModelText(parts[0].file)), files, " ", count);
  }
  if (differ)
    problems.push_back(bad_data("", "the files hold different numbers of samples: " + counts,
                                "write them again: row i of every file belongs to sample i"));
}

// Data whose end lies within a step; nobody who counts epochs expects that.
void note_wrap(const SampleOrder& order, int64_t steps, Diagnostics& notes) {
  const int64_t count = order.samples(), batch = order.batch();
  if (count % batch == 0 || (count + batch - 1) / batch > steps) return;
  Diagnostic note = bad_data("",
                             text("the data have ", count, " samples, which the batch of ", batch,
                                  " does not divide: a step that reaches their end goes on with the next epoch"),
                             "");
  note.severity = Severity::kNote;
  notes.push_back(std::move(note));
}

Status check_rest(const DataTable& table, int64_t rest, int64_t batch, bool trains) {
  const std::string found =
      trains ? text("the last ", rest, " samples of an epoch are a step of their own (--last-batch train), and ")
             : text("the last batch of the evaluation has ", rest, " samples, and ");
  const std::string hint =
      trains ? "take --last-batch drop, pad or wrap" : text("evaluate a multiple of the batch of ", batch, " samples");
  const auto refusal = [&](const std::string& why) {
    return Diagnostic{.code = Code::kUsage, .message = found + why, .hint = hint};
  };
  if (table.whole_steps && trains)
    return refusal(text("the schedule applies gradients of parts of the batch of ", batch, " within a step"));
  for (const TogetherRow& row : table.together) {
    if (!trains && !row.always) continue;
    const int64_t last = rest % row.micro_batch == 0 ? row.micro_batch : rest % row.micro_batch;
    if (last < row.fewest)
      return refusal(
          text("BatchNormalization, with a sample for each of its replicas, or a loss that compares samples needs ",
               row.fewest, " of them together: its last micro-batch would have ", last));
  }
  return Ok{};
}

Result<SampleOrder> checked_order(const DataTable& table, int64_t samples, int64_t batch, const OrderRule& rule) {
  if (rule.last_batch == LastBatch::kDrop && samples < batch)
    return bad_data("",
                    text("the data have ", samples, " samples, fewer than the batch of ", batch,
                         ", so that --last-batch drop leaves no step"),
                    "take another rule, more data or a smaller batch");
  const SampleOrder order(samples, batch, rule);
  if (order.rest() != batch) GP_TRY_VOID(check_rest(table, order.rest(), batch, rule.trains));
  return order;
}

// The order that the arrays have; without samples, that of one batch.
Result<SampleOrder> order_of(const DataTable& table, const Arrays& arrays, const OrderRule& rule) {
  for (const auto& [entry, parts] : arrays)
    if (entry->has_samples()) return checked_order(table, samples_of(*entry, parts), table.batch, rule);
  return SampleOrder(table.batch, table.batch, rule);
}

// Ids among the first `samples` samples.
Status check_first_ids(const DataEntry& entry, const Parts& parts, int64_t samples) {
  for (const DataArray& part : parts) {
    const int64_t here = entry.has_samples() ? std::min(samples, samples_of(entry, part)) : 1;
    GP_TRY_VOID(check_ids(entry, part, 0, here));
    samples -= here;
  }
  return Ok{};
}

std::string bounds_text(const IdBounds& ids) {
  std::string out = text("from ", ids.low, " to ", ids.high - 1);
  if (ids.has_ignored) out += text(", or ", ids.ignored, " for what does not count");
  return out;
}

}  // namespace

Status check_array(const DataEntry& entry, const DataArray& array) {
  const size_t from = entry.has_samples() ? 1 : 0;
  bool same_rest = array.dims.size() == entry.dims.size();
  for (size_t axis = from; same_rest && axis < entry.dims.size(); ++axis) {
    const int64_t found = array.dims[axis], declared = entry.dims[axis];
    same_rest = found == declared || (!entry.fill.empty() && found > 0 && found < declared);
  }
  const bool has_samples =
      !entry.has_samples() || (!array.dims.empty() && array.dims[0] > 0 && array.dims[0] % entry.dims[0] == 0);
  if (array.type == entry.type && same_rest && has_samples) return Ok{};
  if (array.type == entry.type && same_rest && !array.dims.empty() && array.dims[0] == 0)
    return bad_data(array.file, "it holds no samples",
                    "write samples into it, or leave it out where other parts hold them");
  std::string wanted = shape_text(entry.dims);
  if (entry.has_samples()) wanted += " with any number of samples in place of the first";
  if (!entry.fill.empty()) wanted += ", or smaller";
  return bad_data(array.file,
                  text("it holds ", element_name(array.type), shape_text(array.dims), "; the model takes ",
                       element_name(entry.type), wanted),
                  array.type == entry.type && array.dims.size() == entry.dims.size() && entry.fill.empty()
                      ? "write the file again with this shape, or fill smaller samples up with --pad NAME=NUMBER"
                      : "write the file again with this type and shape");
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
  const size_t of_sample = entry.has_samples() ? elements_of_sample(entry, array) : array.elements.size() / bytes;
  const size_t skipped = entry.has_samples() ? static_cast<size_t>(first) * of_sample : 0;
  const size_t count = entry.has_samples() ? static_cast<size_t>(samples) * of_sample : of_sample;
  const auto found = first_out_of_bounds(entry.type, array.elements.subspan(skipped * bytes, count * bytes), entry.ids);
  if (!found) return Ok{};
  const size_t element = skipped + *found;
  return bad_data(array.file,
                  text(place_of(array, element), " is ", integer_at(entry.type, array.elements, element),
                       "; the model takes ", bounds_text(entry.ids)),
                  "correct the data, or train a model with as many rows or classes as they need");
}

DataUse data_use(const DataOptions& options, uint64_t plan_seed) {
  return {
      .steps = options.steps,
      .epochs = options.epochs,
      .rule = {.shuffle = options.shuffle, .seed = options.seed.value_or(plan_seed), .last_batch = options.last_batch}};
}

DataUse evaluation_use() { return {.epochs = 1, .rule = {.last_batch = LastBatch::kTrain, .trains = false}}; }

Diagnostics check_data(const DataTable& table, const OpenData& open, const DataUse& use) {
  Diagnostics problems;
  const Arrays arrays = open_all(table, open, problems);
  check_counts(arrays, problems);
  const Result<SampleOrder> order = order_of(table, arrays, use.rule);
  if (!order) add(problems, order.problems());
  const Result<int64_t> steps = order ? steps_of(*order, use) : use.steps;
  if (!steps) add(problems, steps.problems());
  for (const auto& [entry, parts] : arrays) {
    int64_t samples = entry->has_samples() ? samples_of(*entry, parts) : 1;
    if (steps && !use.rule.shuffle && *steps < samples / table.batch) samples = *steps * table.batch;
    const Status in_bounds = check_first_ids(*entry, parts, samples);
    if (!in_bounds) add(problems, in_bounds.problems());
  }
  if (problems.empty() && use.rule.last_batch == LastBatch::kWrap) note_wrap(*order, *steps, problems);
  if (problems.size() > kMaxProblems) problems.resize(kMaxProblems);
  return problems;
}

Result<SampleOrder> sample_order(const DataTable& table, const OpenData& open, int64_t batch, const OrderRule& rule) {
  for (const DataEntry& entry : table.entries) {
    if (!entry.has_samples()) continue;
    GP_TRY(const Parts parts, open_fitting(entry, open));
    return checked_order(table, samples_of(entry, parts), batch, rule);
  }
  return SampleOrder(batch, batch, rule);
}

Result<int64_t> steps_of(const SampleOrder& order, const DataUse& use) {
  if (use.epochs == 0) return use.steps;
  const int64_t steps = order.steps(use.epochs);
  if (steps >= 0 && steps <= kMaxSteps) return steps;
  return Diagnostic{.code = Code::kUsage,
                    .message = text(use.epochs, " epochs of ", order.samples(), " samples are more than ", kMaxSteps,
                                    " steps of ", order.batch()),
                    .hint = "lower --epochs"};
}

Result<DataTable> read_data_table(const std::string& generated_folder, const std::vector<Padding>& paddings) {
  const std::string path = text(generated_folder, "/", kDataTableFile);
  GP_TRY(const MappedFile file, MappedFile::open(path));
  const std::string_view words(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::optional<DataTable> table = parse_data_table(words);
  if (table) return with_paddings(*std::move(table), paddings);
  return Diagnostic{.code = Code::kMalformedFile,
                    .origin = ModelText(path),
                    .message = "it is not a table of data as this version writes it",
                    .hint = "generate the folder again"};
}

Diagnostics check_data_folder(const std::string& generated_folder, const std::string& folder, const DataUse& use,
                              const std::vector<Padding>& paddings) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return {{.code = Code::kUnreadableFile,
             .origin = ModelText(folder),
             .message = "it is not a folder",
             .hint = "name the folder that holds the data"}};
  const Result<DataTable> table = read_data_table(generated_folder, paddings);
  if (!table) return table.problems();
  if (is_test_data_folder(folder)) return {};
  NpyFolder files(folder, *table);
  return check_data(
      *table, [&](const DataEntry& entry) { return files.open(entry); }, use);
}

bool is_test_data_folder(const std::string& folder) {
  return exists(folder + "/input_0.pb") || exists(folder + "/test_data_set_0/input_0.pb");
}

}  // namespace graphpipe::wire
