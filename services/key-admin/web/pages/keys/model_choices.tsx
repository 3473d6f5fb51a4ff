/** The part of a form that says which models a key may use. */
import type { Catalog } from "@gateway/shared/models/catalog";
import { Box, Choices } from "../../view/parts.tsx";
import { absenceOf, labelOf, namesText } from "../../view/texts.tsx";

/**
 * All models, or those that are ticked, by kind. The style sheet shows the boxes when
 * they count.
 */
export function ModelChoices({ catalog, currentModels, values, error }: {
  catalog: Catalog;
  currentModels: readonly string[];
  values: { which_models: "all" | "these"; models: readonly string[] };
  error: string | undefined;
}) {
  const { which_models: which, models: selection } = values;
  const gone = currentModels.filter((id) => !catalog.has(id));
  const groups = Map.groupBy(
    [...gone, ...catalog.keys()],
    (id) => labelOf(catalog.get(id)?.kind ?? absenceOf(catalog)),
  );
  const ways = [
    ["all", "All models, including future ones"],
    ["these", "Only these models"],
  ] as const;
  return (
    <Choices id="models" legend="Models" error={error}>
      {ways.map(([value, label]) => (
        <Box
          type="radio"
          name="which_models"
          value={value}
          checked={which === value}
          autofocus={error !== undefined && which === value}
        >
          {label}
        </Box>
      ))}
      <div
        class="card models"
        role="group"
        aria-label="Models that the key may use"
        tabindex={0}
      >
        {[...groups].map(([title, ids]) => (
          <fieldset>
            <legend>{title}</legend>
            {ids.map((id) => (
              <Box name="models" value={id} checked={selection.includes(id)}>
                {namesText(catalog.get(id) ?? { id, aliases: [] })}
              </Box>
            ))}
          </fieldset>
        ))}
        {catalog.isPending && (
          <p class="help">
            What the model servers list is not known yet. Load the page again in
            a few seconds.
          </p>
        )}
      </div>
    </Choices>
  );
}
