import type { Explained } from "../api";

/** The steps of a query that was run, with their rows and times. */
export function PlanTable({ plan }: { plan: Explained }) {
  const longest = Math.max(...plan.steps.map((one) => one.milliseconds), 0.001);
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Plan">
      <table className="grid-table">
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col">Detail</th>
            <th scope="col">How</th>
            <th scope="col" className="num">Rows</th>
            <th scope="col" className="num">Milliseconds</th>
            <th scope="col" aria-label="Share of the longest step" style={{ width: 160 }} />
          </tr>
        </thead>
        <tbody>
          {plan.steps.map((one, index) => (
            // biome-ignore lint: steps have no names of their own
            <tr key={index}>
              <td style={{ paddingLeft: 12 + one.depth * 18, fontWeight: 600 }}>{one.step}</td>
              <td className="mono">{one.detail}</td>
              <td>{one.how}</td>
              <td className="num">{one.rows?.toLocaleString("en") ?? ""}</td>
              <td className="num">{one.milliseconds.toFixed(2)}</td>
              <td>
                <div className="bar-track">
                  <div className="bar-fill" style={{ width: `${(100 * one.milliseconds) / longest}%` }} />
                </div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div className="empty">
        {plan.rows.toLocaleString("en")} rows in {plan.milliseconds.toFixed(1)} ms
      </div>
    </div>
  );
}
