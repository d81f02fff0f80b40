// Numbers, sizes and times as people read them. A dash stands for what is not known.

export const UNKNOWN = '–';

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const known = (value) => typeof value === 'number' && Number.isFinite(value);

export const count = (value) => (known(value) ? whole.format(value) : UNKNOWN);

/** 1,234 · 12.3 k · 4.56 M: three digits that say something. */
export function short(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size < 10 && value !== Math.round(value)) return tenths.format(value);
  if (size < 1e4) return whole.format(value);
  for (const [unit, letter] of [[1e3, 'k'], [1e6, 'M'], [1e9, 'G'], [1e12, 'T']]) {
    if (size < unit * 999.5) {
      const digits = size / unit;
      return `${digits.toFixed(digits < 9.995 ? 2 : digits < 99.95 ? 1 : 0)} ${letter}`;
    }
  }
  return value.toExponential(2);
}

export const rate = (value) => (known(value) ? `${short(value < 0.05 ? 0 : value)}/s` : UNKNOWN);

export const share = (value, digits = 1) => (known(value) ? `${(value * 100).toFixed(digits)} %` : UNKNOWN);

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  let size = value;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (Math.abs(size) < 1000 || unit === 'GiB') return `${Number.isInteger(size) ? whole.format(size) : size.toFixed(size < 100 ? 1 : 0)} ${unit}`;
    size /= 1024;
  }
  return UNKNOWN;
}

export function seconds(value) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return '0 s';
  if (value < 0.001) return `${whole.format(value * 1e6)} µs`;
  if (value < 1) return `${value < 0.01 ? (value * 1e3).toFixed(1) : whole.format(value * 1e3)} ms`;
  if (value < 100) return `${value < 10 ? value.toFixed(2) : value.toFixed(1)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${Math.floor(value / 86400)} d`;
}

const clockTime = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const dayTime = new Intl.DateTimeFormat('en-GB', {
  day: '2-digit', month: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit',
});

/** The time of day; with the date, where it is not today's. */
export function time(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const at = new Date(value);
  if (Number.isNaN(at.getTime())) return UNKNOWN;
  return (at.toDateString() === new Date().toDateString() ? clockTime : dayTime).format(at);
}

export const ago = (value) => {
  const at = new Date(value).getTime();
  return Number.isNaN(at) ? UNKNOWN : `${seconds(Math.max(0, Math.round((Date.now() - at) / 1000)))} ago`;
};

export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
