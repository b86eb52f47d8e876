/** The types of the calls of Turret 0.2.0; `make docs` makes them from openapi.json. */

/**
 * The live version, the previous one if there was one, and the processes and replicas that are late.
 * `warning`: the version's vector engine doesn't hold it, or nobody could be asked who is late.
 */
export interface ActivateAnswer {
  version: string;
  previous: string | null;
  behind?: number[];
  replicas_behind?: string[];
  warning?: string | null;
}

/**
 * The version to make live. `force` accepts a recorded metric far below that of the live version or none,
 * and a low overlap of their answers; `compared` says that both were compared on the same events, so the
 * recorded metrics don't count.
 */
export interface ActivateRequest {
  version: string;
  force?: boolean;
  compared?: boolean;
}

/**
 * An activation, or a refusal: an entry of the record, and a line of `activations.jsonl`. `number` counts
 * the activations; a refusal has none. `who`: the name of the key, or `start`, `pointer` (moved while no
 * service ran), `fallback` (a version is not loadable any more). `failed`: the failed checks of a forced
 * activation or a refusal. `manifest`: the SHA-256 of the version's manifest: no other content of that name
 * is served. `words`: the reason.
 */
export interface Activation {
  time: string;
  version: string;
  who: string;
  outcome: "activated" | "refused";
  number?: number | null;
  previous?: string | null;
  manifest?: string | null;
  forced?: boolean;
  failed?: string[];
  words?: string;
}

/** The latest activations and refusals, newest first. */
export interface ActivationsAnswer {
  activations: Activation[];
}

/** The process answers. */
export interface AliveAnswer {
  status: "alive";
}

/** One answer a request, in order. */
export interface BatchAnswer {
  results: RecommendAnswer[];
}

/** Up to 100 recommendations in one call, of up to 10,000 items together (the sum of `k`). */
export interface BatchRequest {
  requests: RecommendRequest[];
}

/** A number (`by`) that is added to the scores of the items that `filter` selects; below 0, it buries. */
export interface BoostBody {
  filter: Record<string, unknown>;
  by: number;
}

/** A version, its share of users, and the exploration of its answers. */
export interface CanaryBody {
  version: string;
  share: number;
  explore?: ExploreBody | null;
}

/** The result of one check, in `words`. */
export interface Check {
  name: "unknown" | "memory" | "checksum" | "soundness" | "golden" | "recall" | "metric" | "overlap" | "crashed";
  passed: boolean;
  words: string;
}

/** A version of the folder, with the report of its last check. */
export interface CheckedVersion {
  version: string;
  is_current: boolean;
  created?: string | null;
  data_until?: string | null;
  item_count?: number | null;
  dimension?: number | null;
  metrics?: Record<string, unknown>;
  recall?: MeasuredRecall[];
  error?: string | null;
  gate?: GateReport | null;
}

/** A group of items, and their number. */
export interface ColourGroup {
  label: string;
  items: number;
}

/**
 * Up to 10 groups of items by a field. `codes` is base64 of one byte a point, in the order of the points:
 * the number of its group, 255 for none.
 */
export interface ColoursAnswer {
  version: string;
  field: string;
  kind: "number" | "boolean" | "text" | "numbers" | "texts" | "mixed" | "none";
  groups: ColourGroup[];
  codes: string;
}

/** Both versions' answers, the share of items in both, and the moves of all items. */
export interface ComparedAnswer {
  live: RecommendAnswer;
  other: RecommendAnswer;
  overlap: number;
  moves: Move[];
}

/**
 * The newest version of each route, by user, over the `days` in which both answered. `lift` is the relative
 * difference of the canary, between `low` and `high` at every look; `decided` tells whether these exclude
 * 0, and `sentence` says so. `days_left` is the time until it is decided, if the difference stays.
 */
export interface ComparedOutcomes {
  live: ComparedUsers;
  canary: ComparedUsers;
  users_of_both: number;
  decided: boolean;
  lift?: number | null;
  low?: number | null;
  high?: number | null;
  days_left?: number | null;
  days: number;
  sentence: string;
}

/** A request to both versions: that of `POST /v1/recommend`, without `cursor` and `min_version`. */
export interface ComparedRequest {
  k?: number;
  exclude?: (number | string)[];
  filter?: Filter | null;
  min_score?: number | null;
  diversity?: number;
  cap?: Record<string, number>;
  boost?: BoostBody[];
  pin?: PinBody[];
  cursor?: null;
  min_version?: null;
  explain?: boolean;
  rules?: string[] | null;
  user_id?: number | string | null;
  session_id?: number | string | null;
  history?: (number | string | { item: number | string; kind?: string | null; })[] | null;
  history_times?: (number | string)[] | null;
  at?: number | string | null;
  features?: Record<string, string | number | boolean | (string | number | boolean)[] | null>;
  context?: Record<string, string | number | boolean | (string | number | boolean)[] | null>;
  exclude_seen?: boolean | string[] | null;
  among?: "all" | "new" | "again";
}

/** The users of one route, those with an outcome, and the value of a user. */
export interface ComparedUsers {
  version: string;
  users: number;
  users_with_outcome: number;
  value_a_user: number;
}

/**
 * The compared version and the live one, since when, and the seconds until the comparison ends. `version`
 * is null if no version is compared.
 */
export interface ComparisonAnswer {
  version: string | null;
  live: string | null;
  opened?: string | null;
  expires_seconds?: number | null;
}

/** The version to compare with the live one. */
export interface ComparisonRequest {
  version: string;
}

/**
 * The effort that reached the recall for up to `k` rows where `rows` items are allowed. `breadth` is None
 * where no effort reached it. `recall`: of the engine's own answers with this effort, or with the largest
 * one, when it was tuned.
 */
export interface EngineEffort {
  rows: number;
  k: number;
  breadth?: number | null;
  recall: number;
}

/**
 * A collection of a running vector engine; the bundle keeps its vectors for exact searches. Attributes:
 * engine: the product, `milvus` or `redis`; `TURRET_ENGINE` names its address. collection: the collection
 * of this version; searches name it, so that towers and vectors match. efforts: the measured efforts, by
 * rows and k; a search that they don't cover is exact. subset_rows: the largest number of allowed rows that
 * are scored exactly in this process.
 */
export interface EngineSettings {
  kind?: "engine";
  is_exact?: false;
  engine: "milvus" | "redis";
  collection: string;
  efforts: EngineEffort[];
  subset_rows?: number;
}

/** The one shape of all errors; `others` are further fields at fault, up to 20. */
export interface ErrorAnswer {
  error: ErrorDetail;
  others?: ErrorDetail[];
}

/** The field at fault, its value, and a message with the remedy. */
export interface ErrorDetail {
  field: string;
  value: unknown;
  message: string;
}

/**
 * One event of a user, or of the session of a stranger. Sent again, it counts once by its `event_id`. With
 * `user_id` and `session_id`, it is the user's, as are all events of the session from then on. `time` is
 * now by default, and if it lies more than a few minutes in the future. `answer_id` names the answer that
 * led to the event.
 */
export interface EventBody {
  event_id: number | string;
  user_id?: number | string | null;
  session_id?: number | string | null;
  item_id: number | string;
  time?: number | string | null;
  kind?: string | null;
  answer_id?: string | null;
}

/**
 * How many events were stored, and how many were duplicates. `clamped`: how many had a time in the future
 * or before 1970, and were stored with another. `expired`: how many are older than the retention period,
 * and were not stored. `moved`: how many stored events of a session became those of its user;
 * `moved_duplicates`: how many did not, as the user has other events with their ids. `warning`: events have
 * a kind that the data of the live version leaves out, or none, or are of items that it lacks.
 */
export interface EventsAnswer {
  stored: number;
  duplicates: number;
  clamped?: number;
  expired?: number;
  moved?: number;
  moved_duplicates?: number;
  warning?: string | null;
}

/** Up to 1000 events; all of them are stored, or none. */
export interface EventsRequest {
  events: EventBody[];
}

/** A boost of an item by a rule, or by the request (null). */
export interface ExplainedBoost {
  rule: string | null;
  by: number;
}

/**
 * The parts of an item's score, and the history items that raise it, strongest first. `boosts`: what has
 * raised the score, and by how much. `uses`: those of the item itself in the history, if there are some.
 * `matched`: the words (each as "=word") and letter trigrams that the item's texts share with a query.
 * `interest`: of several interests of a user, the one with the item's score, as the items of the history
 * that are closest to it.
 */
export interface ExplainedItem {
  id: number | string;
  score_parts: Record<string, number | boolean>;
  pulled_by: Pull[];
  boosts?: ExplainedBoost[];
  uses?: Uses | null;
  matched?: string[] | null;
  interest?: (number | string)[] | null;
}

/**
 * How the items were found. `kind`: a plain search of the index (`index`), an over-fetching search, of
 * which some are left out (`over_fetch`), a search among the allowed items inside the index (`selector`),
 * scoring every allowed item (`subset`), the same while the vector engine is unavailable (`fallback`), or
 * `popularity`. `allowed`: how many items the filter allows, if there is one; `fetched`: how many were
 * examined for the answer.
 */
export interface ExplainedPlan {
  kind: "index" | "over_fetch" | "selector" | "subset" | "fallback" | "popularity";
  allowed: number | null;
  fetched: number;
}

/** The search plan, the time of each stage, and the reasons for each item. */
export interface Explanation {
  plan: ExplainedPlan;
  milliseconds: Record<string, number>;
  items?: ExplainedItem[] | null;
}

/** The places (the first and the last) that a share of a version's answers draws from candidates. */
export interface Exploration {
  places: [number, number];
  share: number;
  among: "new" | "near";
  method: "epsilon" | "plackett_luce";
  views: number;
}

/**
 * In a `share` of the answers, `places` (the first and the last, from 1) are drawn from candidates. The
 * candidates are the 50 best items from the first place on (`near`), or the 50 best that were added since
 * the version was made (`new`). `epsilon` draws uniformly, `plackett_luce` by the softmax of the scores. A
 * new item is drawn for so many `views` at most, for each replica.
 */
export interface ExploreBody {
  places: number[];
  share: number;
  among?: "new" | "near";
  method?: "epsilon" | "plackett_luce";
  views?: number;
}

export interface FieldFilter {
  equals?: string | number | boolean;
  any_of?: (string | number | boolean)[];
  none_of?: (string | number | boolean)[];
  not_null?: boolean;
  under?: string;
  gte?: string | number;
  gt?: string | number;
  lte?: string | number;
  lt?: string | number;
}

/**
 * A field of the catalog. `label` and `unit`: how people read it, as `turret data prepare --show` says.
 * `missing`: the number of items without a value. `minimum` and `maximum`: of numbers. `values`: the most
 * frequent texts, up to 100, of a field whose values are shared by items.
 */
export interface FieldSummary {
  name: string;
  kind: "number" | "boolean" | "text" | "numbers" | "texts" | "mixed" | "none";
  label?: string | null;
  unit?: string | null;
  missing: number;
  minimum?: number | null;
  maximum?: number | null;
  values?: FieldValue[] | null;
}

/** A value of a field, and the number of items that have it. */
export interface FieldValue {
  value: string;
  items: number;
}

/**
 * The fields of a version; `title` names the one that names an item, `picture` the one with pictures.
 * `show` names the ones that people see beside it, in this order; empty where the preparation named none.
 */
export interface FieldsAnswer {
  version: string;
  title: string | null;
  picture: string | null;
  show?: string[];
  fields: FieldSummary[];
}

/**
 * Conditions on catalog fields, all of which have to hold; docs/filters.md has the operators. At most 8
 * levels, 100 conditions, 1000 values.
 */
export interface Filter {
  all?: Filter[];
  any?: Filter[];
  not?: Filter;
  [name: string]: unknown;
}

/** Every vector is compared with the query: recall is 1. */
export interface FlatSettings {
  kind?: "flat";
  is_exact?: true;
}

/** How many events of a user were deleted. */
export interface ForgottenAnswer {
  user_id: string;
  deleted: number;
}

/**
 * An item with its fields; `training_events` is null for an item added since the version was made.
 * `withdrawn`: no answer has it, but histories with it still count it.
 */
export interface FoundItem {
  id: number | string;
  fields: Record<string, unknown>;
  training_events: number | null;
  withdrawn?: boolean;
}

/** Items of one version; `cursor` requests the next page, if there is one. */
export interface FoundItemsAnswer {
  version: string;
  items: FoundItem[];
  cursor?: string | null;
}

/**
 * The checks in their order, up to the first that failed. `forced`: a failed check of the metric or the
 * overlap is accepted. `manifest`: the SHA-256 of the manifest of the checked files; only these may be
 * activated.
 */
export interface GateReport {
  version: string;
  time: string;
  forced: boolean;
  checks: Check[];
  manifest?: string | null;
}

/** A graph of near neighbours (Malkov & Yashunin 2016), `links` a node and level; `breadth` is its ef. */
export interface HnswSettings {
  kind?: "hnsw";
  is_exact?: false;
  efforts: SearchParams[];
  subset_rows?: number;
  lists?: 1;
  augmented?: boolean;
  biased?: boolean;
  links?: number;
  ef_construction?: number;
}

/**
 * The request for an index, and the reasons (`words`) for the chosen one. `recall`: the least of every row
 * of the measured table. `queries`: the number of user vectors that measured it.
 */
export interface IndexChoice {
  asked?: string;
  recall?: number;
  queries?: number;
  words?: string[];
}

/**
 * A recommended item: its id, score, source and catalog fields. The score is the inner product /
 * temperature for `towers` (its absolute value in a version with absolute scoring), the number of training
 * events for `popular`, and the decayed count of stored events for `popular_now`. A `fresh` item was added
 * since the version was made; its score is on the scale of the answer's other items. A `pinned` item has
 * its place by a pin, an `explored` one by a draw.
 */
export interface Item {
  id: number | string;
  score: number;
  source: "towers" | "popular" | "popular_now" | "fresh";
  fields: Record<string, unknown>;
  pinned?: boolean;
  explored?: boolean;
}

/**
 * An item as the live version and the changes since know it. `fields` are those of answers and filters;
 * `fields_replaced`: a PUT has replaced those of the version. `features` are those of a fresh item as they
 * were put, else null. `in_index`: the version was trained with the item. A `withdrawn` item is in no
 * answer. `training_events` and `popularity_rank` (1 for the most events; equal counts share a rank) are
 * null for a fresh item. `versions`: the live version and the canary, if they were trained with it.
 * `degraded` has `items` while recent changes can't be read.
 */
export interface ItemAnswer {
  version: string;
  id: number | string;
  fields: Record<string, unknown>;
  features: Record<string, unknown> | null;
  in_index: boolean;
  fresh: boolean;
  fields_replaced: boolean;
  withdrawn: boolean;
  training_events: number | null;
  popularity_rank: number | null;
  versions: string[];
  degraded: "items"[];
}

/**
 * An item: the features that its vector is computed from, and the fields of answers and filters. `features`
 * maps names to raw values, as in the prepared data; a missing one is unknown. Other columns of the catalog
 * among them are fields. `fields` are the features by default.
 */
export interface ItemBody {
  features: Record<string, string | number | boolean | (string | number | boolean)[] | null>;
  fields?: Record<string, unknown> | null;
}

/**
 * One line of `POST /v1/items`: an item and what `method` does to it by itself. PUT needs `features`, PATCH
 * `features`, `fields` or `withdrawn` (false), and DELETE takes none of them.
 */
export interface ItemLine {
  id: number | string;
  method?: "PUT" | "PATCH" | "DELETE";
  features?: Record<string, string | number | boolean | (string | number | boolean)[] | null> | null;
  fields?: Record<string, unknown> | null;
  withdrawn?: false | null;
}

/**
 * The features and the fields of an item to change; the others stay. A null removes one. With `withdrawn`
 * false, a withdrawn item is served again; else such an item is refused.
 */
export interface ItemPatchBody {
  features?: Record<string, string | number | boolean | (string | number | boolean)[] | null>;
  fields?: Record<string, unknown>;
  withdrawn?: false | null;
}

/**
 * The stored item: its vector is computed from the features, or comes from training. `replicas_behind`
 * names the other replicas of the service whose answers may lack the change for a moment. `warning`: no
 * item of the version has one of the fields, or only with values of another type; or the replicas could not
 * be asked.
 */
export interface ItemPutAnswer {
  version: string;
  id: number | string;
  vector: "features" | "training";
  replicas_behind?: string[];
  warning?: string | null;
}

/**
 * The outcome of one line: its `status` is that of the call of one item, with `error` unless it is 200.
 * `id` is null where the line has none that can be read.
 */
export interface ItemResult {
  line: number;
  id: number | string | null;
  status: number;
  vector?: "features" | "training" | null;
  withdrawn?: boolean;
  error?: RefusedChange | null;
}

/** The vector of an item; null for one that the version doesn't know. */
export interface ItemVector {
  id: number | string;
  vector: number[] | null;
}

/** The item is in no answer of any version from now on, until it is put or patched; see ItemPutAnswer. */
export interface ItemWithdrawnAnswer {
  version: string;
  id: number | string;
  withdrawn: true;
  replicas_behind?: string[];
  warning?: string | null;
}

/** The results of all lines, in their order, and how many are in effect; see ItemPutAnswer. */
export interface ItemsChangedAnswer {
  version: string;
  changed: number;
  refused: number;
  results: ItemResult[];
  replicas_behind?: string[];
  warning?: string | null;
}

/**
 * Lists of product codes: `parts` of four bits each, of the rotated vector, read many at a time. One list
 * of codes may be of unrotated vectors, which spares a query its rotation: unless `rotated`.
 */
export interface IvfPqSettings {
  kind?: "ivf_pq";
  is_exact?: false;
  efforts: SearchParams[];
  subset_rows?: number;
  lists: number;
  augmented?: boolean;
  biased?: boolean;
  parts: number;
  rotated?: boolean;
}

/** Lists of the vectors as eight bits a coordinate. */
export interface IvfSettings {
  kind?: "ivf";
  is_exact?: false;
  efforts: SearchParams[];
  subset_rows?: number;
  lists: number;
  augmented?: boolean;
  biased?: boolean;
}

/**
 * The meaning of a kind. `role`: a target is trained and evaluated as a next item, and read in histories; a
 * signal is read in histories alone; a negative is an item that the user did not choose; an ignored event
 * is dropped. `weight` is how much a target counts in training. After an event of a kind that `consume`s,
 * its item is left out of the user's answers: for ever (true), or for so many days.
 */
export interface Kind {
  role?: "target" | "signal" | "negative" | "ignored";
  weight?: number;
  consume?: boolean | number;
}

/**
 * The map of a version: the number of its points. `colour`: the field whose groups explain the largest
 * share of the variance of the item vectors, None without such a field.
 */
export interface MapAnswer {
  version: string;
  items: number;
  colour?: string | null;
}

/** An item and the number of its point, from 0; null for an item that was added since the export. */
export interface MapItem {
  point: number | null;
  id: number | string;
  fields: Record<string, unknown>;
}

/** The items of some points, or the points of some items, in the order of the request. */
export interface MapItemsAnswer {
  version: string;
  items: MapItem[];
}

/** The share of the true best `k` that the index finds among a share `selectivity` of the items. */
export interface MeasuredRecall {
  k: number;
  selectivity: number;
  recall: number;
}

/** An item of either answer with its ranks, from 1; null: it isn't in that answer. */
export interface Move {
  id: number | string;
  live_rank: number | null;
  other_rank: number | null;
}

/**
 * The outcomes at `time`, which was `age_seconds` ago, of answers by version and route. `comparison` is
 * null where no canary has answered beside the newest live version.
 */
export interface OutcomesAnswer {
  time: string;
  age_seconds: number;
  kinds: string[];
  within: string;
  value: string | null;
  versions: VersionOutcomes[];
  comparison: ComparedOutcomes | null;
  warnings: string[];
}

/**
 * The overlap of both versions' best k over `histories` histories. `source`: the first stored users of a
 * scan, or the recorded queries of the live version if none is stored. `overlap_histogram` counts the
 * histories by tenth of their overlap; `changed_first` is the share of histories with another best item.
 */
export interface OverlapAnswer {
  version: string;
  live: string;
  source: "users" | "golden";
  histories: number;
  overlap_mean: number;
  overlap_histogram: number[];
  changed_first: number;
}

/** An item that has the place `position`, from 1, in every answer that may have the item. */
export interface PinBody {
  item: number | string;
  position: number;
}

/** The items `shown` at a place, and the share of them with an outcome. */
export interface PlaceOutcomes {
  place: number;
  shown: number;
  share: number;
}

/**
 * The items with the most stored events of late. Each event counts half as much after the `half_life` of
 * this name (TURRET_POPULAR), by default the shortest. `kinds` are the kinds of events that count, by
 * default those of targets. `trend` ranks by the share of an item among the events of the half-life over
 * that among those of the longest one: what rises. There is no `min_score`, as the scores are counts.
 */
export interface PopularRequest {
  k?: number;
  exclude?: (number | string)[];
  filter?: Record<string, unknown> | null;
  min_score?: null;
  diversity?: number;
  cap?: Record<string, number>;
  boost?: BoostBody[];
  pin?: PinBody[];
  cursor?: string | null;
  min_version?: string | null;
  explain?: boolean;
  rules?: string[] | null;
  half_life?: string | null;
  kinds?: string[] | null;
  trend?: boolean;
}

/** An item of the history, and by how much the whole score falls without any of its events. */
export interface Pull {
  id: number | string;
  change: number;
}

/** The id of a user with stored events. */
export interface RandomUserAnswer {
  user_id: string;
}

/** A version is live. */
export interface ReadyAnswer {
  status: "ready";
  version: string;
}

/**
 * A recommendation. `degraded` lists the parts that were unavailable: `history` (the stored history),
 * `items` (recent changes of items), `engine` (the vector engine of the version), `rules` (a default rule
 * that the version can't apply). `unknown_items` are items of the history and of pins that the version
 * doesn't know. `exhausted`: fewer items than requested were left. `cursor` requests the next page, if
 * there may be one. `answer_id` names the answer in the events that it leads to; the answers of a
 * comparison have none.
 */
export interface RecommendAnswer {
  version: string;
  items: Item[];
  degraded: ("history" | "items" | "engine" | "rules")[];
  exhausted?: boolean;
  unknown_items?: (number | string)[];
  cursor?: string | null;
  explanation?: Explanation | null;
  answer_id?: string | null;
}

/**
 * A request for recommendations. `history` (item ids, oldest first, or objects of an `item` and the `kind`
 * of its event) is the whole history; without it, the stored histories of `user_id` and of `session_id`
 * count, as one. `history_times` are the times of its items, and `at` is the time of the request, by
 * default now; versions that don't read times ignore both. `features` are the user's, by name, and
 * `context` those of the request, such as the device. `exclude_seen` leaves out the items of the history
 * (true), or those of events of some kinds (a list); without it, the version decides (`exclude_seen` and
 * `kinds` of `GET /v1/version`). `among` ranks all items, those without a use in the history (`new`), or
 * those with one (`again`).
 */
export interface RecommendRequest {
  k?: number;
  exclude?: (number | string)[];
  filter?: Filter | null;
  min_score?: number | null;
  diversity?: number;
  cap?: Record<string, number>;
  boost?: BoostBody[];
  pin?: PinBody[];
  cursor?: string | null;
  min_version?: string | null;
  explain?: boolean;
  rules?: string[] | null;
  user_id?: number | string | null;
  session_id?: number | string | null;
  history?: (number | string | { item: number | string; kind?: string | null; })[] | null;
  history_times?: (number | string)[] | null;
  at?: number | string | null;
  features?: Record<string, string | number | boolean | (string | number | boolean)[] | null>;
  context?: Record<string, string | number | boolean | (string | number | boolean)[] | null>;
  exclude_seen?: boolean | string[] | null;
  among?: "all" | "new" | "again";
}

/** Why a change was refused, as the call of one item says it. */
export interface RefusedChange {
  field: string;
  value: unknown;
  message: string;
}

/**
 * The weights of a model: `timed` where the times of events are known, else `untimed`. `timed` is None
 * where the data has no times. `kinds` is the number of kinds that histories have, and `targets` are the
 * codes of those that take an item.
 */
export interface RepeatTerm {
  untimed: RepeatWeights;
  timed?: RepeatWeights | null;
  kinds?: number;
  targets?: number[];
}

/** The weights of the features by name, and that of the item's score by the towers, `slope`. */
export interface RepeatWeights {
  slope?: number;
  numbers?: Record<string, number>;
  classes?: Record<string, number[]>;
}

/** The live version to replace by the one before it: sent again, the call undoes nothing more. */
export interface RollbackRequest {
  version: string;
}

/** A version, and its share of users or of requests. */
export interface RouteBody {
  version: string;
  share: number;
}

/** A version, its share of users or of requests, and the exploration of a canary's answers. */
export interface RouteShare {
  version: string;
  share: number;
  explore?: Exploration | null;
}

/**
 * The live version, the canary and the shadow, and the processes and replicas that are late. `explore` is
 * the exploration of the live version's answers.
 */
export interface RoutesAnswer {
  live: string | null;
  canary: RouteShare | null;
  shadow: RouteShare | null;
  explore?: Exploration | null;
  behind?: number[];
  replicas_behind?: string[];
  warning?: string | null;
}

/** `POST /admin/routes`; an omitted route stays, null removes it. `explore` is of the live version. */
export interface RoutesRequest {
  canary?: CanaryBody | null;
  shadow?: RouteBody | null;
  explore?: ExploreBody | null;
}

/** A stored rule, the times from and until which it applies, and the share of the users it is for. */
export interface RuleAnswer {
  filter: Record<string, unknown> | null;
  cap: Record<string, number>;
  boost: RuleBoost[];
  pin: RulePin[];
  from: string | null;
  until: string | null;
  share: number;
  default: boolean;
}

/**
 * A rule: a filter on catalog fields, caps, boosts, pins, or several of them. It applies from `from` until
 * `until`, for a `share` of the users, and as a `default` to every answer whose request names no rules.
 */
export interface RuleBody {
  filter?: Filter | null;
  cap?: Record<string, number>;
  boost?: BoostBody[];
  pin?: PinBody[];
  from?: number | string | null;
  until?: number | string | null;
  share?: number;
  default?: boolean;
}

/** A number that is added to the scores of the items that a filter selects. */
export interface RuleBoost {
  filter: Record<string, unknown>;
  by: number;
}

/** An item, and its position in an answer, from 1. */
export interface RulePin {
  item: number | string;
  position: number;
}

/**
 * The stored rules, and when and by which key they were set; null if they never were. `behind` and
 * `replicas_behind`: processes and replicas that don't have them yet; `warning`: they could not be asked.
 */
export interface RulesAnswer {
  rules: Record<string, RuleAnswer>;
  since: string | null;
  who: string | null;
  behind?: number[];
  replicas_behind?: string[];
  warning?: string | null;
}

/**
 * All rules by name, in place of those before. `since`, from an answer, refuses the change if somebody else
 * has changed the rules meanwhile.
 */
export interface RulesRequest {
  rules: Record<string, RuleBody>;
  since?: string | null;
}

/** `since`, from an answer, of the rules to replace: sent again, the call undoes nothing more. */
export interface RulesRollbackRequest {
  since: string;
}

/**
 * The score of two vectors: inner product or cosine, divided by the temperature. For `cosine`, all item and
 * user vectors, without their bias columns, are of length 1. `absolute` takes the absolute value (Blanc &
 * Rendle 2018, eq. 11). `item_bias` adds a learned bias for each item, such as its popularity, which a
 * cosine can't express: the last of an item vector's D columns, against a constant 1 in the user vector.
 * `pairs` columns before those of the towers hold factors of pairs of items: an item's own, and of a user
 * the sum of those of the history over the root of its length.
 */
export interface ScoringConfig {
  kind?: "cosine" | "dot";
  temperature?: number;
  absolute?: boolean;
  item_bias?: boolean;
  pairs?: number;
}

/**
 * The search parameters of an approximate index for up to `k` rows. `breadth`: the number of lists that are
 * read, 1 for an index that reads every code, or the ef of a graph. `candidates`: the number of best
 * approximations that are scored exactly, at least k.
 */
export interface SearchParams {
  k: number;
  breadth?: number;
  candidates: number;
}

/** A query in words (`query`), or its ready vector and other features, by name (`features`). */
export interface SearchRequest {
  k?: number;
  exclude?: (number | string)[];
  filter?: Filter | null;
  min_score?: number | null;
  diversity?: number;
  cap?: Record<string, number>;
  boost?: BoostBody[];
  pin?: PinBody[];
  cursor?: string | null;
  min_version?: string | null;
  explain?: boolean;
  rules?: string[] | null;
  query?: string | null;
  features?: Record<string, string | number | boolean | (string | number | boolean)[] | null>;
}

/** The conditions on the items that are similar to one. */
export interface SimilarRequest {
  k?: number;
  exclude?: (number | string)[];
  filter?: Filter | null;
  min_score?: number | null;
  diversity?: number;
  cap?: Record<string, number>;
  boost?: BoostBody[];
  pin?: PinBody[];
  cursor?: string | null;
  min_version?: string | null;
  explain?: boolean;
  rules?: string[] | null;
}

/** One event of a user; the time is ISO 8601 in UTC. `answer_id`: the event named the answer before it. */
export interface StoredEvent {
  event_id: string;
  item_id: number | string;
  time: string;
  kind: string | null;
  answer_id?: string | null;
}

/** The stored events of a user: their number, and the newest 1000, oldest first. */
export interface UserAnswer {
  user_id: string;
  total: number;
  events: StoredEvent[];
}

/**
 * How often the history has an item, by kinds too, the mean days between its uses, and since the last. The
 * days are null for a history without times, and those between for an item of one use.
 */
export interface Uses {
  times: number;
  kinds: Record<string, number>;
  every_days: number | null;
  last_days_ago: number | null;
}

/**
 * The vectors of items, and of the users of requests, null for a history without a known item. Where users
 * have several interests, a request has a vector of each, and a score is the best of them. A score is the
 * inner product of both, without its sign where `absolute`, divided by the `temperature`. `normalised`: the
 * vectors have the length 1; `item_bias`: the last number of an item is its bias.
 */
export interface VectorsAnswer {
  version: string;
  normalised: boolean;
  temperature: number;
  absolute: boolean;
  item_bias: boolean;
  items: ItemVector[];
  requests: (number[] | number[][] | null)[];
  degraded: ("history" | "items")[];
}

/** The vectors of `items`, and of the users of `requests`, which are those of recommendations. */
export interface VectorsRequest {
  items?: (number | string)[];
  requests?: RecommendRequest[];
}

/** The live version: its manifest without the files, and since when it is live. */
export interface VersionAnswer {
  version: string;
  catalog_time?: string | null;
  data_until?: string | null;
  kinds?: Record<string, Kind>;
  default_kind?: string | null;
  duplicates?: "keep" | "exact" | "first" | "last" | "strongest";
  session_gap?: string | null;
  reads_kinds?: boolean;
  context?: string[];
  scoring: ScoringConfig;
  history_length: number;
  reads_times?: boolean;
  reads_queries?: boolean;
  reads_sets?: boolean;
  interests?: number;
  exclude_seen?: boolean | string[] | null;
  repeats?: RepeatTerm | null;
  keeps_html?: boolean;
  metrics?: Record<string, unknown>;
  fingerprints?: Record<string, string>;
  format_version?: 4;
  created: string;
  exported?: string | null;
  dimension: number;
  item_count: number;
  index?: FlatSettings | IvfPqSettings | IvfSettings | HnswSettings | EngineSettings;
  index_choice?: IndexChoice | null;
  recall?: MeasuredRecall[];
  since: string;
}

/**
 * The answers of a version and a route, their users and outcomes, and the share of answers with one.
 * `revenue` is the sum of the values, where `value` was asked for.
 */
export interface VersionOutcomes {
  version: string;
  route: string;
  answers: number;
  users: number;
  with_outcome: number;
  outcomes: number;
  by_place: PlaceOutcomes[];
  revenue?: number | null;
}

/** The live version, if there is one yet, and every bundle in the folder, oldest first. */
export interface VersionsAnswer {
  live: string | null;
  versions: CheckedVersion[];
}

/** Each call by its method and path. */
export interface Calls {
  "POST /v1/recommend": { body: RecommendRequest; answer: RecommendAnswer };
  "POST /v1/recommend/batch": { body: BatchRequest; answer: BatchAnswer };
  "POST /v1/search": { body: SearchRequest; answer: RecommendAnswer };
  "POST /v1/popular": { body: PopularRequest; answer: RecommendAnswer };
  "POST /v1/vectors": { body: VectorsRequest; answer: VectorsAnswer };
  "GET /v1/items": { query: { query?: string; id?: string[]; limit?: number; cursor?: string; }; answer: FoundItemsAnswer };
  "POST /v1/items": { body: string; answer: ItemsChangedAnswer };
  "GET /v1/items/{item_id}/similar": { path: { item_id: string; }; query: { k?: number; }; answer: RecommendAnswer };
  "POST /v1/items/{item_id}/similar": { path: { item_id: string; }; body: SimilarRequest; answer: RecommendAnswer };
  "GET /v1/items/{item_id}": { path: { item_id: string; }; answer: ItemAnswer };
  "PUT /v1/items/{item_id}": { path: { item_id: string; }; body: ItemBody; answer: ItemPutAnswer };
  "PATCH /v1/items/{item_id}": { path: { item_id: string; }; body: ItemPatchBody; answer: ItemPutAnswer };
  "DELETE /v1/items/{item_id}": { path: { item_id: string; }; answer: ItemWithdrawnAnswer };
  "GET /v1/fields": { answer: FieldsAnswer };
  "GET /v1/map": { answer: MapAnswer };
  "GET /v1/map/points": { answer: ArrayBuffer };
  "GET /v1/map/colours": { query: { field: string; }; answer: ColoursAnswer };
  "GET /v1/map/items": { query: { point?: number[]; id?: string[]; }; answer: MapItemsAnswer };
  "POST /v1/events": { body: EventsRequest; answer: EventsAnswer };
  "GET /v1/random-user": { answer: RandomUserAnswer };
  "GET /v1/users/{user_id}": { path: { user_id: string; }; answer: UserAnswer };
  "DELETE /v1/users/{user_id}": { path: { user_id: string; }; answer: ForgottenAnswer };
  "GET /v1/rules": { answer: RulesAnswer };
  "PUT /v1/rules": { body: RulesRequest; answer: RulesAnswer };
  "POST /v1/rules/rollback": { body: RulesRollbackRequest; answer: RulesAnswer };
  "GET /v1/version": { answer: VersionAnswer };
  "GET /v1/versions": { answer: VersionsAnswer };
  "GET /v1/activations": { answer: ActivationsAnswer };
  "POST /admin/activate": { body: ActivateRequest; answer: ActivateAnswer };
  "POST /admin/rollback": { body: RollbackRequest; answer: ActivateAnswer };
  "GET /admin/routes": { answer: RoutesAnswer };
  "POST /admin/routes": { body: RoutesRequest; answer: RoutesAnswer };
  "GET /admin/outcomes": { query: { kind?: string[]; within?: string; value?: string; }; answer: OutcomesAnswer };
  "POST /admin/comparison": { body: ComparisonRequest; answer: ComparisonAnswer };
  "GET /admin/comparison": { query: { version?: string; }; answer: ComparisonAnswer };
  "DELETE /admin/comparison": { query: { version?: string; }; answer: ComparisonAnswer };
  "POST /admin/comparison/recommend": { query: { version?: string; }; body: ComparedRequest; answer: ComparedAnswer };
  "GET /admin/comparison/overlap": { query: { version?: string; users?: number; k?: number; }; answer: OverlapAnswer };
  "GET /livez": { answer: AliveAnswer };
  "GET /readyz": { answer: ReadyAnswer };
  "GET /metrics": { query: { history?: boolean; }; answer: { ages: (number | null)[]; series: Record<string, (number | null)[]>; } | string };
}
