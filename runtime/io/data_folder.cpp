// Data in files: one .npy per name, or ONNX test data.

#include <ATen/EmptyTensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/error.h"
#include "runtime/io/data.h"
#include "runtime/io/prefetch.h"
#include "runtime/io/stored_samples.h"
#include "runtime/io/tensor_proto.h"
#include "support/stopwatch.h"
#include "wire/check_data.h"
#include "wire/scan_numbers.h"

namespace graphpipe::runtime {
namespace {

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// Slices samples out of arrays, which are opened once and checked against the first row that asks for them.
class StoredData : public Data {
 public:
  StoredData(wire::OpenData open, const wire::DataTable& table, int64_t batch, const wire::OrderRule& rule,
             bool reads_ahead)
      : order_(value_or_throw(wire::sample_order(table, open, batch, rule))), open_(std::move(open)), table_(table) {
    if (!reads_ahead) return;
    prefetch_.emplace([this](const ReadRequest& request) {
      std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(request.row->tensor, request.range.size())));
      gather(*request.row, request.step, request.range, bytes);
      return bytes;
    });
  }

  int64_t samples_of(int64_t step) override { return order_.samples_of(step); }
  double batches_in(int64_t first, int64_t last) const override { return order_.batches_in(first, last); }
  int64_t steps_per_epoch() const override { return order_.steps_per_epoch(); }
  int64_t rest() const override { return order_.rest(); }

  at::Tensor item(const DataRow& row, int64_t step, wire::SampleRange range) override {
    // Not by at::empty, whose way through the dispatcher takes as long as small items.
    at::Tensor stored(at::detail::empty_cpu(stored_dims(row, range.size()), scalar_type(row.tensor.type)));
    const std::span<std::byte> to = bytes_in(stored);
    std::optional<std::vector<std::byte>> read;
    if (prefetch_) read = prefetch_->take({&row, step, range});
    if (read) std::ranges::copy(*read, to.begin());
    else gather_now(row, step, range, to);
    if (prefetch_) read_next(row, step, range);
    return row.tensor.batch_axis < 0 ? stored : batch_axis_in_place(std::move(stored), row);
  }

 private:
  // The next step asks for the same, as far as it has these samples. A row that all samples share is read once.
  void read_next(const DataRow& row, int64_t step, wire::SampleRange range) {
    const wire::SampleRange next = wire::intersect(range, {0, order_.samples_of(step + 1)});
    if (row.tensor.batch_axis >= 0 && !next.empty()) prefetch_->begin({&row, step + 1, next});
  }

  void gather_now(const DataRow& row, int64_t step, wire::SampleRange range, std::span<std::byte> bytes) {
    const Stopwatch watch;
    gather(row, step, range, bytes);
    if (prefetch_) prefetch_->took(watch.seconds());
  }

  // Fills `bytes` with the samples, sample axis first. Called by the rank and by the thread that reads ahead.
  void gather(const DataRow& row, int64_t step, wire::SampleRange range, std::span<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    const Opened& opened = open_once(row);
    auto* to = bytes.data();
    if (row.tensor.batch_axis < 0) return copy_samples(opened, opened.parts.front(), 0, 1, bytes.size(), to);
    const size_t sample_bytes = range.empty() ? 0 : bytes.size() / static_cast<size_t>(range.size());
    const std::vector<int64_t> rows = order_.rows(step, range);
    // Copies one run of consecutive samples of one part at a time.
    for (size_t i = 0; i < rows.size();) {
      const Part& part = part_of(opened, rows[i]);
      size_t end = i + 1;
      while (end < rows.size() && rows[end] == rows[end - 1] + 1 && rows[end] < part.last) ++end;
      copy_samples(opened, part, rows[i] - part.first, static_cast<int64_t>(end - i), sample_bytes, to);
      to += (end - i) * sample_bytes;
      i = end;
    }
  }

  struct Part {
    wire::DataArray array;
    int64_t first = 0, last = 0;  // its samples
  };
  struct Opened {
    wire::DataEntry entry;
    std::vector<Part> parts;
    mutable bool reported = false;
  };

  const Opened& open_once(const DataRow& row) {
    auto found = arrays_.find(row.name);
    if (found == arrays_.end()) {
      Opened opened{.entry = entry_of(row), .parts = {}};
      const auto listed = std::ranges::find(table_.entries, opened.entry.name, &wire::DataEntry::name);
      if (listed != table_.entries.end()) opened.entry.fill = listed->fill;
      int64_t first = 0;
      for (wire::DataArray& array : value_or_throw(open_(opened.entry))) {
        value_or_throw(wire::check_array(opened.entry, array));
        const int64_t samples = row.tensor.batch_axis < 0 ? 1 : array.dims[0] / row.tensor.rows_per_sample;
        opened.parts.push_back({std::move(array), first, first + samples});
        first += samples;
      }
      check_samples(opened, first);
      found = arrays_.emplace(row.name, std::move(opened)).first;
    }
    return found->second;
  }

  // The launcher has checked this already, but the files may have changed since.
  void check_samples(const Opened& opened, int64_t samples) const {
    if (!opened.entry.has_samples() || samples == order_.samples()) return;
    throw RunError(Diagnostic{.code = Code::kBadData,
                              .origin = ModelText(opened.parts.front().array.file),
                              .message = text("it has ", samples, " samples, and other inputs have ", order_.samples()),
                              .hint = "write the files again: row i of every file belongs to sample i"});
  }

  static const Part& part_of(const Opened& opened, int64_t sample) {
    return *std::ranges::upper_bound(opened.parts, sample, {}, &Part::last);
  }

  static void copy_samples(const Opened& opened, const Part& part, int64_t first, int64_t samples, size_t sample_bytes,
                           std::byte* to) {
    auto file_bytes = static_cast<size_t>(element_size(opened.entry.type));
    for (size_t axis = 0; axis < part.array.dims.size(); ++axis)
      file_bytes *= static_cast<size_t>(dim_of(opened, part.array.dims, axis, samples));
    const auto skipped = static_cast<size_t>(first) * (file_bytes / static_cast<size_t>(samples));
    const auto elements = part.array.elements.subspan(skipped, file_bytes);
    if (elements.empty()) return;
    value_or_throw(wire::check_ids(opened.entry, part.array, first, samples));
    if (!opened.reported) report_not_finite(opened, part.array, skipped, elements);
    const std::span<std::byte> place(to, static_cast<size_t>(samples) * sample_bytes);
    // The file's samples may be smaller than the row's.
    if (elements.size() == place.size()) std::memcpy(to, elements.data(), elements.size());
    else copy_smaller(opened, part.array, samples, elements, place);
  }

  /// A dim of so many samples, in a file or of a row.
  static int64_t dim_of(const Opened& opened, const std::vector<int64_t>& dims, size_t axis, int64_t samples) {
    return axis == 0 && opened.entry.has_samples() ? samples * opened.entry.dims[0] : dims[axis];
  }

  static void copy_smaller(const Opened& opened, const wire::DataArray& array, int64_t samples,
                           std::span<const std::byte> elements, std::span<std::byte> place) {
    std::vector<int64_t> from, dims;
    for (size_t axis = 0; axis < array.dims.size(); ++axis) {
      from.push_back(dim_of(opened, array.dims, axis, samples));
      dims.push_back(dim_of(opened, opened.entry.dims, axis, samples));
    }
    wire::copy_padded(elements, from, opened.entry.fill, dims, place);
  }

  // A mask may hold infinities on purpose, so this is not an error here; a non-finite loss ends the run.
  static void report_not_finite(const Opened& opened, const wire::DataArray& array, size_t skipped,
                                std::span<const std::byte> elements) {
    const ElementType type = array.type;
    const std::optional<size_t> found = wire::first_not_finite(type, elements);
    if (!found) return;
    opened.reported = true;
    const Diagnostic warning{
        .code = Code::kBadData,
        .severity = Severity::kWarning,
        .origin = ModelText(array.file),
        .message = text(wire::place_of(array, skipped / static_cast<size_t>(element_size(type)) + *found), " is ",
                        wire::not_finite_name(type, elements, *found)),
        .hint = "clean the data where that is not meant; further ones of this file are not reported"};
    std::fprintf(stderr, "%s\n", to_line(warning).c_str());
  }

  wire::SampleOrder order_;
  wire::OpenData open_;
  wire::DataTable table_;
  std::mutex mutex_;
  std::map<std::string, Opened> arrays_;
  std::optional<Prefetch> prefetch_;  // last: its thread uses everything above
};

/// The tensors of all sets of ONNX test data, by name.
class TestDataFolder {
 public:
  explicit TestDataFolder(const std::string& folder) {
    if (exists(folder + "/input_0.pb")) read_set(folder);
    for (int set = 0; exists(set_folder(folder, set) + "/input_0.pb"); ++set) read_set(set_folder(folder, set));
  }

  Result<std::vector<wire::DataArray>> open(const wire::DataEntry& entry) {
    const auto found = sets_.find(entry.name);
    if (found == sets_.end()) {
      std::string names;
      for (const auto& [name, tensors] : sets_) names += " " + quoted(ModelText(name));
      return bad_data(entry, "the test data hold no such tensor, only" + names,
                      "name each TensorProto after its input or label");
    }
    std::vector<at::Tensor> parts;
    for (const StoredTensor& tensor : found->second) {
      GP_TRY(at::Tensor part, batch_axis_first(tensor, found->second[0], entry));
      parts.push_back(std::move(part));
    }
    const at::Tensor& all = joined_[entry.name] = entry.has_samples() ? at::cat(parts).contiguous() : parts[0];
    return std::vector<wire::DataArray>{
        {.type = found->second[0].type, .dims = all.sizes().vec(), .elements = bytes_in(all), .file = entry.name}};
  }

 private:
  static std::string set_folder(const std::string& folder, int set) { return text(folder, "/test_data_set_", set); }

  void read_set(const std::string& folder) {
    for (const std::string_view kind : {"input_", "output_"})
      for (int i = 0; exists(text(folder, "/", kind, i, ".pb")); ++i) {
        const std::string path = text(folder, "/", kind, i, ".pb");
        const MappedFile file = value_or_throw(MappedFile::open(path));
        StoredTensor tensor = read_tensor_proto(file.bytes(), path);
        std::string name = tensor.name.empty() ? text(kind, i) : tensor.name;
        sets_[std::move(name)].push_back(std::move(tensor));
      }
  }

  static Diagnostic bad_data(const wire::DataEntry& entry, std::string message, std::string hint) {
    return {.code = Code::kBadData,
            .origin = ModelText(entry.name),
            .message = std::move(message),
            .hint = std::move(hint)};
  }

  static Result<at::Tensor> batch_axis_first(const StoredTensor& tensor, const StoredTensor& first,
                                             const wire::DataEntry& entry) {
    const int64_t axis = entry.batch_axis;
    if (tensor.type != first.type || tensor.dims.size() != first.dims.size() ||
        axis >= static_cast<int64_t>(tensor.dims.size()))
      return bad_data(entry, "the sets' tensors of this name differ in type or rank", "write all sets for one model");
    for (size_t i = 0; i < tensor.dims.size(); ++i)
      if (tensor.dims[i] != first.dims[i] && static_cast<int64_t>(i) != axis)
        return bad_data(entry, "the sets' tensors of this name differ in more than samples",
                        "write all sets for one model");
    at::Tensor copy = at::empty(tensor.dims, at::TensorOptions().dtype(scalar_type(tensor.type)));
    if (!tensor.bytes.empty()) std::memcpy(bytes_in(copy).data(), tensor.bytes.data(), tensor.bytes.size());
    return axis > 0 ? copy.movedim(axis, 0).contiguous() : copy;
  }

  std::map<std::string, std::vector<StoredTensor>> sets_;
  std::map<std::string, at::Tensor> joined_;
};

/// Opens the arrays of a folder, and keeps them open.
wire::OpenData opener_of(const std::string& folder, const wire::DataTable& table) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    fail(Code::kUnreadableFile, quoted(ModelText(folder)) + " is not a folder", "pass the data folder with --data");
  const auto open_with = [](auto files) -> wire::OpenData {
    return [files](const wire::DataEntry& entry) { return files->open(entry); };
  };
  if (wire::is_test_data_folder(folder)) return open_with(std::make_shared<TestDataFolder>(folder));
  return open_with(std::make_shared<wire::NpyFolder>(folder, table));
}

}  // namespace

std::unique_ptr<Data> data_folder(const std::string& folder, const wire::DataTable& table, int64_t batch,
                                  const wire::OrderRule& rule, bool reads_ahead) {
  return std::make_unique<StoredData>(opener_of(folder, table), table, batch, rule, reads_ahead);
}

Diagnostics check_data_folder(const std::string& generated_folder, const std::string& folder, const wire::DataUse& use,
                              const std::vector<wire::Padding>& paddings) {
  const wire::DataTable table = value_or_throw(wire::read_data_table(generated_folder, paddings));
  return wire::check_data(table, opener_of(folder, table), use);
}

int64_t steps_in_folder(const std::string& generated_folder, const std::string& folder, const wire::DataUse& use,
                        const std::vector<wire::Padding>& paddings) {
  const wire::DataTable table = value_or_throw(wire::read_data_table(generated_folder, paddings));
  const wire::SampleOrder order =
      value_or_throw(wire::sample_order(table, opener_of(folder, table), table.batch, use.rule));
  return value_or_throw(wire::steps_of(order, use));
}

}  // namespace graphpipe::runtime
