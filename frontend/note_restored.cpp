#include "frontend/note_restored.h"

#include <set>
#include <utility>

#include "frontend/import_onnx.h"

namespace graphpipe::frontend {
namespace {

std::string list_of(const std::vector<std::string>& names) {
  std::string words;
  for (const std::string& name : names) words += text(words.empty() ? "" : ", ", quoted(ModelText(name)));
  return words;
}

void note_looked_up(const LookedUp& value, Diagnostics& notes) {
  notes.push_back({.code = Code::kLostByExport,
                   .severity = Severity::kNote,
                   .origin = ModelText(value.name),
                   .message = text("the exporter's optimiser has looked up one row of ", quoted(ModelText(value.table)),
                                   " in several places; it is one parameter"),
                   .hint = "nothing: all samples read it, or the numbers by which it was looked up are equal"});
}

/// The layers of a model have a table each: one warning says it of all.
void warn_of_assumed(const std::vector<LookedUp>& assumed, Diagnostics& notes) {
  if (assumed.empty()) return;
  const std::string others = assumed.size() == 1 ? "" : text(", and of ", assumed.size() - 1, " more");
  notes.push_back({.code = Code::kLostByExport,
                   .severity = Severity::kWarning,
                   .origin = ModelText(assumed.front().name),
                   .message = text("the exporter's optimiser has looked up equal rows in several places; they are ",
                                   "assumed to be one row of ", quoted(ModelText(assumed.front().table)), others,
                                   ", not several that began equal"),
                   .hint = text("nothing, unless a table has equal rows, a padding_idx or scale_grad_by_freq; then ",
                                kExportRecipe, ", or with graphpipe.export")});
}

/// Axes of size 1 aside, which load_into takes in any place.
void warn_of_reshaped(const std::vector<std::string>& names, Diagnostics& notes) {
  if (names.empty()) return;
  const std::string these = names.size() == 1 ? "this parameter" : text(names.size(), " parameters, this one first,");
  notes.push_back(
      {.code = Code::kLostByExport,
       .severity = Severity::kWarning,
       .origin = ModelText(names.front()),
       .message = text("the exporter's optimiser has reshaped ", these,
                       " beforehand: the elements train as the module's do, in the shape that was computed, "
                       "as the file says no other"),
       .hint = text("reshape trained weights before they are loaded; for muon, which trains by the shape, ",
                    kExportRecipe)});
}

void warn_of_tokens(const std::vector<std::string>& names, Diagnostics& notes) {
  if (names.empty()) return;
  const std::string these = names.size() == 1 ? "this parameter" : text(names.size(), " parameters, this one first,");
  notes.push_back({.code = Code::kLostByExport,
                   .severity = Severity::kWarning,
                   .origin = ModelText(names.front()),
                   .message = text("the exporter's optimiser has expanded ", these,
                                   " beforehand, and the elements are all equal: they train apart, as a vector of "
                                   "features, which their readers take"),
                   .hint = text("nothing if the module has as many; if it has one number, ", kExportRecipe,
                                ", or with graphpipe.export")});
}

void tell_of_elsewhere(const std::vector<std::string>& names, Severity severity, Diagnostics& notes) {
  if (names.empty()) return;
  notes.push_back({.code = Code::kLostByExport,
                   .severity = severity,
                   .origin = ModelText(names.front()),
                   .message =
                       "the exporter's optimiser has computed this of a parameter beforehand, and the module does not "
                       "on the line that reads it: its gradient trains the parameter, as if the module did not "
                       "compute it under torch.no_grad()",
                   .hint = text("nothing where it does not; else ", kExportRecipe, ", or with graphpipe.export")});
}

/// What a value is taken for of which the file does not tell everything.
void note_taken(const Restoration& restored, Diagnostics& notes) {
  std::vector<LookedUp> assumed;
  for (const LookedUp& value : restored.look_ups) {
    if (value.is_assumed) assumed.push_back(value);
    else if (value.is_repeated) note_looked_up(value, notes);
  }
  warn_of_assumed(assumed, notes);
  warn_of_reshaped(restored.reshaped, notes);
  warn_of_tokens(restored.taken_for_tokens, notes);
  tell_of_elsewhere(restored.recomputed_elsewhere, Severity::kWarning, notes);
  tell_of_elsewhere(restored.exponentials_elsewhere, Severity::kNote, notes);
  for (const SeparatedValue& value : restored.separated)
    notes.push_back(
        {.code = Code::kLostByExport,
         .severity = Severity::kWarning,
         .origin = ModelText(value.name),
         .message = text("the exporter's optimiser has merged this value with an equal one; it is taken to be "
                         "computed from ",
                         list_of(value.parameters),
                         ", of which the file tells nothing else: assumed is a layer or token beside the other, not a "
                         "second use of the other beside one that the module does not use"),
         .hint = text("nothing if the module does so; else parameters train that it does not use: ", kExportRecipe,
                      ", or with graphpipe.export")});
}

}  // namespace

void note_restored(const Restoration& restored, Diagnostics& notes) {
  note_taken(restored, notes);
  std::set<std::string> assumed;
  for (const SeparatedValue& value : restored.separated)
    assumed.insert(value.parameters.begin(), value.parameters.end());
  for (const LookedUp& value : restored.look_ups) assumed.insert(value.table);
  std::vector<std::string> names = restored.names;
  std::erase_if(names, [&](const std::string& name) { return assumed.contains(name); });
  if (names.empty()) return;
  notes.push_back(
      {.code = Code::kLostByExport,
       .severity = Severity::kNote,
       .origin = ModelText(names.front()),
       .message = names.size() == 1
                      ? "this tensor of the module is there again, which the exporter's optimiser had "
                        "transposed, merged with an equal one, computed something from, or removed"
                      : text(names.size(),
                             " tensors of the module, this one first, are there again, which the exporter's "
                             "optimiser had transposed, merged with equal ones, computed something from, or removed"),
       .hint = "nothing: the model trains under the names of the module"});
}

}  // namespace graphpipe::frontend
