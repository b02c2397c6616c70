// Numbers, sizes and times as people read them. Pure.

const UNITS = ["", "k", "M", "G", "T"];

/** 1234567 -> "1.23 M"; whole numbers below 10,000 as they are. */
export function count(value) {
  if (value < 10000 && Number.isInteger(value)) return value.toLocaleString("en");
  return scaled(value);
}

/** Items per second, three digits. */
export const rate = (value) => (value > 0 && value < 0.1 ? "<0.1" : scaled(value));

function scaled(value) {
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = value === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : unit > 0 ? 2 : 1;
  const text = value.toFixed(digits);
  return unit > 0 ? `${text} ${UNITS[unit]}` : text;
}

/** Bytes, in binary units. */
export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export const percent = (share) => `${Math.round(100 * share)}%`;

/** Seconds -> "0.24 s", "12 s", "3 min 05 s", "2 h 10 min". */
export function duration(seconds) {
  if (seconds < 0) return "0 s";
  if (seconds < 1) return `${(1000 * seconds).toFixed(0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const pad = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${pad(Math.floor(whole / 60) % 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

/** Seconds since 1970 -> "14:03:22", with the date if that was not today. */
export function clock(time) {
  const moment = new Date(1000 * time);
  const text = moment.toLocaleTimeString("en-GB");
  return moment.toDateString() === new Date().toDateString() ? text : `${moment.toLocaleDateString("en-CA")} ${text}`;
}
